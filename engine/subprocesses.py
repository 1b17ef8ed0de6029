"""How this project starts processes of Python: with its own code, and with nothing of the folder they start in.

`python -m` takes modules from the current folder first: a file there that is called engine.py would stand in for ours.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]


def python_command(module: str, *arguments: str) -> list[str]:
    """The command line that runs a module with this Python, whatever lies in the current folder."""
    return [sys.executable, "-P", "-m", module, *arguments]


def end_session(leader: int) -> None:
    """Asks every process of a session to end, but its leader: also those with a process group of their own (Linux)."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            pid = int(folder.name)
            if pid != leader and os.getsid(pid) == leader:
                os.kill(pid, signal.SIGTERM)


def python_environment(inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Variables for such a process and all that it starts: each finds the code that this one runs, and no other."""
    own = [str(_ROOT)] if (_ROOT / "pyproject.toml").is_file() else []  # installed, every Python here finds it
    # An empty entry stands for the current folder, and comes first even so.
    theirs = [one for one in inherited.get("PYTHONPATH", "").split(os.pathsep) if one and one not in own]
    return {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(own + theirs)}
