"""Folders that only their owner may open: the home, the artifacts, the queue."""

from __future__ import annotations

import os
import stat
from pathlib import Path

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
