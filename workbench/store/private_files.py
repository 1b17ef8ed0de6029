"""Files in the home folder that only their owner may read."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from engine.files import new_file


def write_private(path: Path, content: bytes) -> None:
    """Writes a file atomically."""
    with new_file(path, private=True) as file:
        file.write_bytes(content)


def create_private(path: Path, content: bytes) -> None:
    """Writes a file atomically unless it exists, even if another process creates it at the same time."""
    with suppress(FileExistsError), new_file(path, replace=False, private=True) as file:
        file.write_bytes(content)
