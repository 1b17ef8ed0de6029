"""`jobs.attempt.runner` with the counting kind."""

from jobs.attempt.runner import main
from tests.gauntlet.counting_kind import install

install()
main()
