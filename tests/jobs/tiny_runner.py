"""`jobs.attempt.runner` with the counting kind."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # no process takes modules from beside its script by itself

from tiny_kind import TINY

from jobs.attempt.runner import main
from jobs.registry import KINDS

KINDS["evaluate"] = TINY
main()
