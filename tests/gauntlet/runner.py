"""`jobs.attempt.runner` with the counting kind, and a clock that can be set."""

from tests.gauntlet import clock

clock.install()

from jobs.attempt.runner import main  # noqa: E402
from tests.gauntlet.counting_kind import install  # noqa: E402

install()
main()
