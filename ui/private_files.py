"""Files in the home folder that nobody but their owner may read."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path


def private_folder(folder: Path) -> Path:
    """The folder, made where there is none; only its owner may look into it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def write_private(path: Path, content: bytes) -> None:
    """Writes a file that is whole from the first moment on."""
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=".")  # readable by its owner alone
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(aside, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(aside)
        raise
