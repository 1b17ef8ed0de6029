"""Temporary files and caches of libraries: in the home folder, for its owner alone, and not for long.

The temporary folder of the system is open to all users: what lies there may be read by them, and whoever makes a folder
there first keeps everybody else from it.
"""

from __future__ import annotations

import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from workbench.settings import Settings
from workbench.store.private_folder import private_folder

FOLDER = "tmp"  # in the home folder
KEPT_SECONDS = 7 * 24 * 3600.0
GRADIO = "GRADIO_TEMP_DIR"
# By the variable that names it: a folder in ours. Libraries with none of their own take TMPDIR.
_FOLDERS = {
    "TMPDIR": "",
    GRADIO: "gradio",
    "JOBLIB_TEMP_FOLDER": "joblib",
    "MPLCONFIGDIR": "matplotlib",
    "NUMBA_CACHE_DIR": "numba",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
}


def keep_temporary_files(settings: Settings) -> None:
    """Sends the temporary files of this process and of those that it starts to the home folder, and sweeps it.

    For the start of a server's process, before libraries read these variables. Raises StorageError.
    """
    for name in _FOLDERS:
        os.environ[name] = str(temporary_folder(settings, name))
    tempfile.tempdir = None  # as TMPDIR says from now on
    sweep_temporary_files(settings)


def temporary_folder(settings: Settings, variable: str = "TMPDIR") -> Path:
    """The folder that one of these variables shall name, which nobody but its owner may open."""
    private_folder(settings.root)
    folder = private_folder(settings.root / FOLDER)
    return private_folder(folder / _FOLDERS[variable]) if _FOLDERS[variable] else folder


def sweep_temporary_files(settings: Settings) -> None:
    """Removes files and links that nobody has written for a week, and folders that are empty since.

    Sockets and pipes stay: they look as old as they are, however much goes through them.
    """
    before = time.time() - KEPT_SECONDS
    for path in _deepest_first(settings.root / FOLDER):
        with suppress(OSError):  # a folder with files, or what another process has removed
            status = path.lstat()
            if status.st_mtime >= before:
                continue
            if stat.S_ISDIR(status.st_mode):
                path.rmdir()
            elif stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
                path.unlink()


def _deepest_first(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder, topdown=False):
        yield from (Path(parent, name) for name in (*files, *folders))
