"""Files in the home folder that nobody but their owner may read."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def private_folder(folder: Path) -> Path:
    """The folder, made where there is none; only its owner may look into it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def write_private(path: Path, content: bytes) -> None:
    """Writes a file that is whole from the first moment on."""
    with _aside(path, content) as aside:
        os.replace(aside, path)


def create_private(path: Path, content: bytes) -> None:
    """The same, but a file that is there stays as it is, even if another process makes it at this moment."""
    with _aside(path, content) as aside:
        try:
            os.link(aside, path)
        except FileExistsError:
            return
        except OSError:  # a file system without links
            if not path.exists():
                os.replace(aside, path)


@contextmanager
def _aside(path: Path, content: bytes) -> Iterator[str]:
    """A file beside the one that is meant; gone at the end, unless it was moved."""
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=".")  # readable by its owner alone
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        yield aside
    finally:
        with suppress(FileNotFoundError):
            os.unlink(aside)
