"""Where PostgreSQL's programs lie on this machine."""

from __future__ import annotations

import shutil
from pathlib import Path

LIBRARY = Path("/usr/lib/postgresql")  # Debian keeps the programs of every version there, out of the PATH


def find_initdb(library: Path = LIBRARY) -> Path | None:
    """The program that makes a new server's files: the one in the PATH, else that of the newest version."""
    if (result := shutil.which("initdb")) is not None:
        return Path(result).resolve()
    versions = sorted(library.glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    return versions[-1] if versions else None
