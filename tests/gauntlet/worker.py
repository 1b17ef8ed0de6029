"""`jobs.queue.worker` whose runners know the counting kind."""

import sys

from jobs.queue import tasks
from jobs.queue.worker import main

tasks.RUNNER[:] = [sys.executable, "-m", "tests.gauntlet.runner"]
main()
