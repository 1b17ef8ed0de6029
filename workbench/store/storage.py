"""Folders of weights and texts under random ids: whole or absent, checked before use, safe from sweeps.

Records, `records/ID.json` next to the artifacts, are copies of their rows in the registry. They lie outside the
artifacts, whose files never change. `row_records` writes them; `rebuild` turns them into rows again.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from engine.errors import DamagedFileError
from engine.files import (
    MANIFEST,
    ArtifactRef,
    aside_pattern,
    folder_size,
    new_file,
    new_folder,
    read_temporary,
    sha256_of,
)
from workbench.errors import DiskFullError, StorageError, StoreFailedError
from workbench.schema.tables import Artifact
from workbench.settings import Settings, get_settings
from workbench.store.object_store import ARTIFACTS, CHECKPOINTS, LOGS, ObjectStore, object_store
from workbench.store.trash import KEPT_SECONDS, Trash, Trashed

DELETED_AT = "deleted_at"  # in the record of an artifact that was deleted from the registry

LEFT_SECONDS = 3600.0  # no file is written aside for so long

Record = dict[str, Any]


def remove_leftovers(folder: Path, older_than_seconds: float = LEFT_SECONDS) -> list[Path]:
    """Deletes temporary files of writers that died; returns their former paths."""
    removed = []
    for path in folder.glob(aside_pattern()):
        with suppress(OSError):
            if path.is_file() and path.stat().st_mtime < time.time() - older_than_seconds:
                path.unlink()
                removed.append(path)
    return removed


class Records:
    """The records of one store. An unreadable record counts as missing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, artifact_id: str) -> Path:
        return self.folder / f"{artifact_id}.json"

    def read(self, artifact_id: str) -> Record | None:
        """The record of an artifact, or None."""
        with suppress(OSError, ValueError):
            record = json.loads(self.path(artifact_id).read_text(encoding="utf-8"))
            return record if isinstance(record, dict) else None
        return None

    def is_live(self, artifact_id: str) -> bool:
        """True if a registry recorded the artifact and it was not deleted since."""
        record = self.read(artifact_id)
        return record is not None and DELETED_AT not in record

    def write(self, artifact_id: str, record: Record) -> None:
        """Writes a record atomically, unless it is unchanged."""
        if self.read(artifact_id) == record:
            return
        with new_file(self.path(artifact_id), synced=False) as file:
            file.write_text(json.dumps(record, indent=1, sort_keys=True), encoding="utf-8")

    def mark_deleted(self, artifact_id: str, at: float) -> None:
        """Marks an artifact as deleted; the rest of its record stays."""
        self.write(artifact_id, {DELETED_AT: at, **(self.read(artifact_id) or {})})

    def clear_deleted(self, artifact_id: str) -> None:
        """Removes the mark, and the record if it has nothing else."""
        record = self.read(artifact_id) or {}
        if record.pop(DELETED_AT, None) is not None and record:
            self.write(artifact_id, record)
        elif not record:
            self.remove(artifact_id)

    def remove(self, artifact_id: str) -> None:
        self.path(artifact_id).unlink(missing_ok=True)

    def ids(self) -> set[str]:
        """The ids of all artifacts with a record."""
        return {path.stem for path in self.folder.glob("*.json")}


OWNER, RECORDS, _TRASH, _VERIFIED = "registry.json", "records", "trash", "verified"  # next to the artifacts
ADAPTERS = "adapters"  # also there: experts as PEFT adapters, for a server that reads them; gone with their artifacts
UNREADABLE = "unreadable"  # the owner that a damaged file names: no registry has such an id
_ID = re.compile(r"[0-9a-f]{32}")
_ALMOST_NOTHING_BYTES = 1 << 20


def confine(folder: Path, id: str) -> Path:
    """The place of `id` in a folder; raises StorageError for anything but 32 hexadecimal digits."""
    if not _ID.fullmatch(id):
        raise StorageError(
            f"An id must be 32 hexadecimal digits; got “{id[:60]}”.",
            "Use the id that the registry shows.",
        )
    return folder / id


@dataclass(frozen=True)
class CachedArtifact(ArtifactRef):
    """An artifact of a shared store in its local folder; a damaged copy is fetched again."""

    fetch_again: Callable[[], None] = lambda: None

    def check(self) -> str:
        """As for any artifact; raises DamagedFileError only when the store's own copy is also damaged.

        Raises StoreFailedError while the store is away, and DiskFullError.
        """
        try:
            return super().check()
        except DamagedFileError:
            self._replace()
            return super().check()

    def _replace(self) -> None:
        try:
            self.fetch_again()
        except (StoreFailedError, DiskFullError):
            raise
        except StorageError as error:
            raise DamagedFileError(error.cause, error.next_step) from error


class StoredIds(NamedTuple):
    """The folders of a shared store: ids of artifacts, of jobs with checkpoints, and of jobs with logs."""

    artifacts: frozenset[str] = frozenset()
    checkpoints: frozenset[str] = frozenset()
    logs: frozenset[str] = frozenset()


class Storage:
    """The artifacts of one registry in a folder, each in a folder of its own, with their records and a trash.

    With a shared store the folder is a cache of it: a new artifact is uploaded before it gets its name, and one that is
    not there is fetched when its path is asked for.
    """

    def __init__(self, folder: Path, shared: ObjectStore | None = None) -> None:
        self.folder = folder
        self.shared = shared
        self.records = Records(folder / RECORDS)
        self.trash = Trash(folder / _TRASH)

    def place(self, artifact_id: str) -> Path:
        """The artifact's folder on this machine, whether it is there or not."""
        return confine(self.folder, artifact_id)

    def path(self, artifact_id: str) -> Path:
        """The same, after it was fetched from the shared store if it is only there."""
        folder = self.place(artifact_id)
        if self.shared is not None and not folder.exists():
            with noticing_full_disk(self.folder):
                self.shared.fetch(f"{ARTIFACTS}/{artifact_id}", folder)
        return folder

    @contextmanager
    def new(self, artifact_id: str) -> Iterator[Path]:
        """Yields a folder to fill; it becomes the artifact when the block ends well, else nothing is left."""

        def upload(folder: Path) -> None:
            if self.shared is not None:
                before = partial(self._before_upload, artifact_id)
                self.shared.upload(folder, f"{ARTIFACTS}/{artifact_id}", before_each=before)

        with noticing_full_disk(self.folder), new_folder(self.place(artifact_id), complete=upload) as folder:
            yield folder

    def _before_upload(self, artifact_id: str) -> None:
        """Called before each file of a new artifact is uploaded."""

    def stored_ids(self) -> StoredIds:
        """What the shared store has now; nothing without one."""
        if self.shared is None:
            return StoredIds()
        return StoredIds(*(frozenset(self.shared.ids(folder)) for folder in (ARTIFACTS, CHECKPOINTS, LOGS)))

    def upload_missing(self, among: Collection[str] | None = None) -> Iterator[str]:
        """Uploads artifacts of this machine (of `among`, or all) that the shared store lacks; yields the id of each."""
        assert self.shared is not None, "the caller checks"
        for id in sorted(self.ids() if among is None else self.ids().intersection(among)):
            if self.shared.read(f"{ARTIFACTS}/{id}/{MANIFEST}") is None:
                self.shared.upload(self.path(id), f"{ARTIFACTS}/{id}")
                yield id

    def describe(self, artifact_id: str) -> tuple[str, int]:
        """The SHA-256 of the artifact's manifest, and its size in bytes."""
        path = self.path(artifact_id)
        if not (path / MANIFEST).is_file():
            raise StorageError(f"There is no artifact in {path}.", "Run the job that makes it again.")
        return sha256_of(path / MANIFEST), folder_size(path)

    def kept(self, artifact: Artifact) -> ArtifactRef:
        """The path and hash of an artifact, to be checked when no transaction waits."""
        path = self.path(artifact.id)
        if self.shared is None:
            return ArtifactRef(path, artifact.sha256, self._verified_record(artifact.id))
        shared, name = self.shared, f"{ARTIFACTS}/{artifact.id}"

        def fetch_again() -> None:
            with noticing_full_disk(path.parent):
                shared.fetch(name, path, replace=True)

        return CachedArtifact(path, artifact.sha256, self._verified_record(artifact.id), fetch_again)

    def _verified_record(self, artifact_id: str) -> Path:
        return self.folder / _VERIFIED / artifact_id

    def ids(self) -> set[str]:
        """The ids of all artifacts that are there, whether a registry knows them or not."""
        if not self.folder.is_dir():
            return set()
        return {path.name for path in self.folder.iterdir() if _ID.fullmatch(path.name) and _is_folder(path)}

    def owner(self) -> str | None:
        """The id of the registry that these artifacts belong to; None as long as none has claimed them.

        Where nobody can read whose they are, they are UNREADABLE's.
        """
        try:
            return str(json.loads((self.folder / OWNER).read_text(encoding="utf-8"))["registry_id"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            return UNREADABLE

    def set_owner(self, registry_id: str, *, replace: bool = False) -> bool:
        """Claims the artifacts for a registry; False where another was faster, unless it is to be replaced."""
        with suppress(FileExistsError), new_file(self.folder / OWNER, replace=replace) as file:
            file.write_text(json.dumps({"registry_id": registry_id}), encoding="utf-8")
        return self.owner() == registry_id

    def claimed_at(self) -> float:
        """When a registry claimed the artifacts; 0 as long as none has."""
        with suppress(FileNotFoundError):
            return (self.folder / OWNER).stat().st_mtime
        return 0.0

    def sweep(self, known_ids: Collection[str], grace_seconds: float) -> list[Path]:
        """Moves unknown folders that were not changed recently to the trash; returns their former paths.

        A known artifact is never moved, not even the rest of one whose replacement was interrupted. Nor is one that a
        registry recorded and that was not deleted: then the registry lost a row. An artifact without a record counts
        as changed when the artifacts were claimed: another registry may still have to record it. Temporary folders
        of writers that died are deleted.
        """
        if not self.folder.is_dir():
            return []
        before, recorded, claimed_at = time.time() - grace_seconds, self.records.ids(), self.claimed_at()
        orphans = [
            path
            for path in sorted(self.folder.iterdir())
            if self._is_orphan(path, known_ids)
            and _newest(path) < before
            and (path.name in recorded or not _ID.fullmatch(path.name) or claimed_at < before)
        ]
        for path in orphans:
            if _ID.fullmatch(path.name):
                with suppress(FileNotFoundError):  # another machine also sweeps
                    self.trash.put(path, "artifact")
            else:
                shutil.rmtree(path, ignore_errors=True)
        return orphans

    def empty_trash(self, older_than_seconds: float = KEPT_SECONDS) -> list[Trashed]:
        """Permanently deletes entries of at least that age and their records; returns the deleted entries."""
        gone = self.trash.empty(older_than_seconds)
        self.forget_records()
        verified = list((self.folder / _VERIFIED).glob("*"))  # before the ids: an artifact that is new has none here
        adapters = [path for path in (self.folder / ADAPTERS).glob("*") if _ID.fullmatch(path.name)]
        ids = self.ids()
        for record in verified:
            if record.name not in ids:
                record.unlink(missing_ok=True)
        for folder in adapters:
            if folder.name not in ids:
                shutil.rmtree(folder, ignore_errors=True)
        return gone

    def forget_records(self) -> None:
        """Deletes the records of artifacts that were deleted and are no longer in the trash."""
        remove_leftovers(self.records.folder)
        for id in self.records.ids() - self.ids() - self.trash.ids():
            if not self.records.is_live(id):
                self.records.remove(id)

    def _is_orphan(self, path: Path, known_ids: Collection[str]) -> bool:
        if not _is_folder(path):
            return False
        if _ID.fullmatch(path.name):
            return path.name not in known_ids and not self.records.is_live(path.name)
        id, was_there = read_temporary(path) or ("", False)
        if not _ID.fullmatch(id):
            return False  # not ours
        if was_there and (id in known_ids or self.records.is_live(id)) and not self.place(id).exists():
            path.rename(self.place(id))  # the writer died between its two renames
            return False
        return True


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def get_storage(settings: Settings | None = None) -> Storage:
    """The storage of a machine."""
    settings = settings or get_settings()
    return Storage(settings.artifacts_folder, object_store(settings.store))


@contextmanager
def noticing_full_disk(folder: Path) -> Iterator[None]:
    """Turns the errors of libraries into DiskFullError when the disk of `folder` is full."""
    try:
        yield
    except DiskFullError:
        raise
    except Exception as error:
        if not is_full_disk(error, folder):
            raise
        raise disk_full(folder) from error


def is_full_disk(error: BaseException, folder: Path) -> bool:
    """True if an error means that the disk of `folder` is full."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    if "No space left on device" in str(error) or "Disk quota exceeded" in str(error):
        return True  # safetensors and Arrow have their own error types
    # NumPy reports only the number of items that it could not write.
    return isinstance(error, OSError) and error.errno is None and free_bytes(folder) < _ALMOST_NOTHING_BYTES


def disk_full(folder: Path) -> DiskFullError:
    """The error for a full disk, with the folder and the free space."""
    return DiskFullError(
        f"The disk of {folder} is full: {free_bytes(folder):,} bytes are free.",
        "Free some space, or set WORKBENCH_ARTIFACTS to a folder on a larger disk; then resume the job.",
    )


def free_bytes(folder: Path) -> int:
    """The free bytes on the disk of a folder, which may not exist yet."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _newest(folder: Path) -> float:
    newest = 0.0
    for root, _, files in os.walk(folder):
        for path in [root, *(os.path.join(root, file) for file in files)]:
            with suppress(FileNotFoundError):  # its writer just moved on
                newest = max(newest, os.lstat(path).st_mtime)
    return newest
