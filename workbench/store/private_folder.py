"""Folders and files that only their owner may open: the home, the artifacts, the queue, temporary files."""

from __future__ import annotations

import os
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from engine.files import new_file
from engine.foreign_files import what_is
from workbench.errors import StorageError
from workbench.settings import Settings

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def make_private(settings: Settings) -> None:
    """Creates the home and the folder of artifacts, or takes others' rights on them away; see `private_folder`."""
    private_folder(settings.root, "WORKBENCH_HOME")
    if not settings.artifacts_folder.is_relative_to(settings.root):
        private_folder(settings.artifacts_folder, "WORKBENCH_ARTIFACTS")


def private_folder(folder: Path, variable: str = "WORKBENCH_HOME") -> Path:
    """Creates a folder that only its owner may open, or makes it one; `variable` is the setting that names it.

    Raises StorageError for a folder of another user, for one that all users share such as /tmp, and for one that cannot
    be created or changed. On a file system without permissions nothing changes.
    """
    if what := what_is(folder) or ("file" if folder.is_file() else ""):
        raise StorageError(f"{folder} is a {what}, not a folder.", f"Set {variable} to a folder.")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.stat()
        _require_own(folder, status, variable)
        if status.st_mode & _OTHERS:
            folder.chmod(stat.S_IMODE(status.st_mode) & ~_OTHERS)
    except OSError as error:
        raise StorageError(
            f"The folder {folder} is not writable ({error.strerror}).",
            f"Set {variable} to another folder, or change its permissions.",
        ) from None
    return folder


def _require_own(folder: Path, status: os.stat_result, variable: str) -> None:
    if status.st_uid != os.geteuid():
        raise StorageError(
            f"The folder {folder} belongs to another user (number {status.st_uid}), who can read all that is in it.",
            f"Set {variable} to a folder of your own, or change its owner.",
        )
    if status.st_mode & stat.S_ISVTX or folder == folder.parent:
        raise StorageError(
            f"The folder {folder} is shared by all users of this machine, so it cannot be made private.",
            f"Set {variable} to a folder in it.",
        )


def write_private(path: Path, content: bytes) -> None:
    """Writes a file atomically."""
    with new_file(path, private=True) as file:
        file.write_bytes(content)


def create_private(path: Path, content: bytes) -> None:
    """Writes a file atomically unless it exists, even if another process creates it at the same time."""
    with suppress(FileExistsError), new_file(path, replace=False, private=True) as file:
        file.write_bytes(content)


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
    entries = (
        Path(parent, name)
        for parent, folders, files in os.walk(settings.root / FOLDER, topdown=False)
        for name in (*files, *folders)
    )
    for path in entries:
        with suppress(OSError):  # a folder with files, or what another process has removed
            status = path.lstat()
            if status.st_mtime >= before:
                continue
            if stat.S_ISDIR(status.st_mode):
                path.rmdir()
            elif stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
                path.unlink()
