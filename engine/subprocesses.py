"""How this project starts processes of Python: with its own code, and with nothing of the folder they start in.

`python -m` takes modules from the current folder first: a file there that is called engine.py would stand in for ours.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]


def python_command(module: str, *arguments: str) -> list[str]:
    """The command line that runs a module with this Python, whatever lies in the current folder."""
    return [sys.executable, "-P", "-m", module, *arguments]


def python_environment(inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Variables for such a process and all that it starts: each finds the code that this one runs, and no other."""
    safe = {"PYTHONSAFEPATH": "1"}
    if not (_ROOT / "pyproject.toml").is_file():
        return safe  # installed: every Python of this environment finds it
    paths = inherited.get("PYTHONPATH", "").split(os.pathsep)
    return safe | {"PYTHONPATH": os.pathsep.join([str(_ROOT), *(one for one in paths if one and one != str(_ROOT))])}
