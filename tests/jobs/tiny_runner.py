"""`jobs.attempt.runner` with the counting kind."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # no process takes modules from beside its script by itself

from tiny_kind import tiny_evaluate

from jobs.attempt.runner import main
from workbench.kinds.kind import known_kinds

known_kinds()["evaluate"] = tiny_evaluate()
main()
