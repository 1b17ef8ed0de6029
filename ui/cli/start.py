"""The command `workbench`; one sentence where only the engine is installed."""

from __future__ import annotations

import sys

from engine.plugins import MissingExtraError, require_extras

PROBLEM = 2  # the exit code of ui.cli.app, which cannot be imported yet


def main() -> int:
    """Runs the command line and returns its exit code."""
    try:
        require_extras("jobs")
    except MissingExtraError as missing:
        print(missing, file=sys.stderr)
        return PROBLEM
    from ui.cli.app import main as run

    return run()
