"""A trash folder: what a sweep takes is moved there, can be restored for 30 days, and is deleted after that."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from engine.files import folder_size
from workbench.errors import StorageError

KEPT_SECONDS = 30 * 24 * 3600.0
_STAMP = "%Y%m%dT%H%M%SZ"
_NAME = re.compile(r"(?P<at>\d{8}T\d{6}Z)-(?P<kind>artifact|job)-(?P<id>[0-9a-f]{32})")

Kind = Literal["artifact", "job"]


@dataclass(frozen=True)
class Trashed:
    """A folder in the trash: its name there says when it came, what it is and where it was."""

    path: Path
    id: str
    kind: Kind
    at: float  # seconds since 1970

    @property
    def size_bytes(self) -> int:
        return folder_size(self.path)


class Trash:
    """A folder on the filesystem of what it takes: things are renamed, never copied, so a full disk is no obstacle."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, path: Path, kind: Kind) -> Path:
        """Moves the folder of an artifact or a job, which is called by its id, into the trash; gives its new path."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        at = datetime.now(UTC).strftime(_STAMP)
        return path.rename(self.folder / f"{at}-{kind}-{path.name}")

    def entries(self) -> list[Trashed]:
        """What is in the trash, the oldest first. Anything with another kind of name is not ours."""
        found = []
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            if (name := _NAME.fullmatch(path.name)) and path.is_dir() and not path.is_symlink():
                at = datetime.strptime(name["at"], _STAMP).replace(tzinfo=UTC).timestamp()
                kind: Kind = "job" if name["kind"] == "job" else "artifact"
                found.append(Trashed(path, name["id"], kind, at))
        return sorted(found, key=lambda one: (one.at, one.id))

    def ids(self) -> set[str]:
        """The ids of what is in the trash."""
        return {one.id for one in self.entries()}

    def restore(self, entry: Trashed, path: Path) -> None:
        """Moves an entry back to `path`, where it counts as new; raises StorageError where something is there."""
        if path.exists():
            raise StorageError(f"{path} exists already.", "Move it away to restore what is in the trash.")
        path.parent.mkdir(parents=True, exist_ok=True)
        os.utime(entry.path)  # a sweep waits a day again
        entry.path.rename(path)

    def empty(self, older_than_seconds: float = 0.0) -> list[Trashed]:
        """Deletes what has been in the trash for that long, for good; gives what was deleted."""
        before = time.time() - older_than_seconds
        gone = [one for one in self.entries() if one.at <= before]
        for one in gone:
            shutil.rmtree(one.path, ignore_errors=True)
        return [one for one in gone if not one.path.exists()]


def find_entries(entries: Collection[Trashed], id: str) -> list[Trashed]:
    """The entry whose id begins so, the newest where there are several of one id; raises StorageError for none."""
    found = {one.id: one for one in entries if one.id.startswith(id)}
    if len(found) != 1 or not id:
        what = "is ambiguous in the trash" if found else "is not in the trash"
        raise StorageError(f"“{id[:60]}” {what}.", "See `workbench registry trash list`.")
    return list(found.values())
