"""`jobs.queue.worker` whose runners know the counting kind."""

import sys
from pathlib import Path

from jobs.queue import tasks
from jobs.queue.worker import main

tasks.RUNNER[:] = [sys.executable, str(Path(__file__).with_name("tiny_runner.py"))]
main()
