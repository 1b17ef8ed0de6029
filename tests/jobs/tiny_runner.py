"""`jobs.runner` with the counting kind."""

import tiny_kind  # noqa: F401

from jobs.runner import main

main()
