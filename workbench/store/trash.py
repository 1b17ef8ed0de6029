"""A trash folder: what a sweep takes is moved there, can be restored for 30 days, and is deleted after that."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from workbench.errors import StorageError

KEPT_SECONDS = 30 * 24 * 3600.0
STAMP = r"(?P<at>\d{8}T\d{6}Z)"  # in names: when
_FORMAT = "%Y%m%dT%H%M%SZ"
_NAME = re.compile(STAMP + r"-(?P<kind>artifact|job)-(?P<id>[0-9a-f]{32})")

Kind = Literal["artifact", "job"]


def stamp_now() -> str:
    """The present moment, as names of files tell it."""
    return datetime.now(UTC).strftime(_FORMAT)


def seconds_of(stamp: str) -> float:
    """The seconds since 1970 of such a moment."""
    return datetime.strptime(stamp, _FORMAT).replace(tzinfo=UTC).timestamp()


@dataclass(frozen=True)
class Trashed:
    """A folder in the trash: its name there says when it came, what it is and where it was."""

    path: Path
    id: str
    kind: Kind
    at: float  # seconds since 1970

    @property
    def size_bytes(self) -> int:
        """Bytes of all its files; another process may delete them meanwhile."""
        total = 0
        for root, _, files in os.walk(self.path):
            for file in files:
                with suppress(FileNotFoundError):
                    total += os.lstat(os.path.join(root, file)).st_size
        return total

    def is_older(self, seconds: float) -> bool:
        """Whether it has been in the trash for so long."""
        return self.at <= time.time() - seconds


class Trash:
    """A folder on the filesystem of what it takes: things are renamed, never copied, so a full disk is no obstacle."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, path: Path, kind: Kind) -> Path:
        """Moves the folder of an artifact or a job, which is called by its id, into the trash; gives its new path."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path.rename(self.folder / f"{stamp_now()}-{kind}-{path.name}")

    def entries(self) -> list[Trashed]:
        """What is in the trash, the oldest first. Anything with another kind of name is not ours."""
        found = []
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            if (name := _NAME.fullmatch(path.name)) and path.is_dir() and not path.is_symlink():
                kind: Kind = "job" if name["kind"] == "job" else "artifact"
                found.append(Trashed(path, name["id"], kind, seconds_of(name["at"])))
        return sorted(found, key=lambda one: (one.at, one.id))

    def ids(self) -> set[str]:
        """The ids of what is in the trash."""
        return {one.id for one in self.entries()}

    def restore(self, entry: Trashed, path: Path) -> None:
        """Moves an entry back to `path`, where it counts as new.

        Raises StorageError where something is there, or where the entry is gone.
        """
        if path.exists():
            raise StorageError(f"{path} exists already.", "Move it away to restore what is in the trash.")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.utime(entry.path)  # a sweep waits a day again
            entry.path.rename(path)
        except FileNotFoundError:
            raise StorageError(f"{entry.path} is gone.", "See `workbench registry trash list`.") from None

    def empty(self, older_than_seconds: float = 0.0) -> list[Trashed]:
        """Deletes what has been in the trash for that long, for good; gives what was deleted."""
        gone = [one for one in self.entries() if one.is_older(older_than_seconds)]
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
