"""Files and folders that jobs write where a user wants them: never over what is there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from workbench.errors import StorageError

What = Literal["file", "folder"]


def existing(path: Path, what: What) -> StorageError:
    """The error for a path that is taken."""
    return StorageError(f"{path} exists already.", f"Choose another {what}: nothing is written over.")


def output_complaints(path: str, what: What) -> list[str]:
    """Why nothing new can be written to a path; empty if it can. A link that leads nowhere is there, too."""
    return [str(existing(Path(path), what))] if os.path.lexists(path) else []
