"""`jobs.queue.scheduler` with a clock that can be set."""

from tests.gauntlet import clock

clock.install()

from jobs.queue.scheduler import main  # noqa: E402

main()
