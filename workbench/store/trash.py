"""The trash folder: swept folders are moved there, can be restored for 30 days, and are deleted after that."""

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
    """The current time as used in file names."""
    return datetime.now(UTC).strftime(_FORMAT)


def seconds_of(stamp: str) -> float:
    """The seconds since 1970 of a time stamp."""
    return datetime.strptime(stamp, _FORMAT).replace(tzinfo=UTC).timestamp()


@dataclass(frozen=True)
class Trashed:
    """A folder in the trash; its name has the time, the kind and the id."""

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
        """True if it has been in the trash for that long."""
        return self.at <= time.time() - seconds


class Trash:
    """A trash folder on the same filesystem: folders are renamed, never copied, so it works on a full disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, path: Path, kind: Kind) -> Path:
        """Moves the folder of an artifact or job, named by its id, into the trash; returns its new path."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path.rename(self.folder / f"{stamp_now()}-{kind}-{path.name}")

    def entries(self) -> list[Trashed]:
        """The entries of the trash, the oldest first; folders with other names are ignored."""
        entries = []
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            if (name := _NAME.fullmatch(path.name)) and path.is_dir() and not path.is_symlink():
                kind: Kind = "job" if name["kind"] == "job" else "artifact"
                entries.append(Trashed(path, name["id"], kind, seconds_of(name["at"])))
        return sorted(entries, key=lambda entry: (entry.at, entry.id))

    def ids(self) -> set[str]:
        """The ids of the entries."""
        return {entry.id for entry in self.entries()}

    def restore(self, entry: Trashed, path: Path) -> None:
        """Moves an entry back to `path`, where it counts as new.

        Raises StorageError when the path exists, or the entry does not.
        """
        if path.exists():
            raise StorageError(f"{path} exists already.", "Move it away first.")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.utime(entry.path)  # a sweep waits a day again
            entry.path.rename(path)
        except FileNotFoundError:
            raise StorageError(f"{entry.path} is gone.", "See `workbench registry trash list`.") from None

    def empty(self, older_than_seconds: float = 0.0) -> list[Trashed]:
        """Permanently deletes entries of at least that age; returns the deleted ones."""
        old = [entry for entry in self.entries() if entry.is_older(older_than_seconds)]
        for entry in old:
            shutil.rmtree(entry.path, ignore_errors=True)
        return [entry for entry in old if not entry.path.exists()]


def find_entries(entries: Collection[Trashed], id: str) -> list[Trashed]:
    """The entry with this prefix of its id, the newest of several with one id; raises StorageError if not unique."""
    matches = {entry.id: entry for entry in entries if entry.id.startswith(id)}
    if len(matches) != 1 or not id:
        what = "is ambiguous in the trash" if matches else "is not in the trash"
        raise StorageError(f"“{id[:60]}” {what}.", "See `workbench registry trash list`.")
    return list(matches.values())
