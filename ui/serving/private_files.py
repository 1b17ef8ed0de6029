"""Files in the home folder that only their owner may read."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def private_folder(folder: Path) -> Path:
    """Creates a folder that only its owner may open, and returns it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def write_private(path: Path, content: bytes) -> None:
    """Writes a file atomically."""
    with _aside(path, content) as aside:
        os.replace(aside, path)


def create_private(path: Path, content: bytes) -> None:
    """Writes a file atomically unless it exists, even if another process creates it at the same time."""
    with _aside(path, content) as aside:
        try:
            os.link(aside, path)
        except FileExistsError:
            return
        except OSError:  # the file system has no hard links
            if not path.exists():
                os.replace(aside, path)


@contextmanager
def _aside(path: Path, content: bytes) -> Iterator[str]:
    """A temporary file beside `path`, removed at the end unless it was moved."""
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=".")  # readable by its owner alone
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        yield aside
    finally:
        with suppress(FileNotFoundError):
            os.unlink(aside)
