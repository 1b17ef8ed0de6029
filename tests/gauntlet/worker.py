"""`jobs.queue.worker` with a clock that can be set, whose runners know the counting kind."""

import sys

from tests.gauntlet import clock

clock.install()

from jobs.queue import tasks  # noqa: E402
from jobs.queue.worker import main  # noqa: E402

tasks.RUNNER[:] = [sys.executable, "-m", "tests.gauntlet.runner"]
main()
