"""Checkpoints of a job in a shared store, so that a worker of another machine continues from the last one.

Below `checkpoints/JOB` lie the files of the job's folder under their SHA-256, and for each attempt that saved something
an index, `index-FENCE.json`, of their names. An index is written after its files: an upload that was interrupted leaves
the last one valid. Of those that can be read, the index with the highest fence counts: an attempt that lost its lease
cannot replace it.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from engine.files import aside_of, new_file, sha256_of
from workbench.errors import StorageError, StoreFailedError
from workbench.store.object_store import CHECKPOINTS, ObjectStore

SYNCED = ".synced.json"  # in a job's folder: the index that it was last equal to
_INDEX = re.compile(r"index-(\d{8})\.json")

Files = dict[str, str]  # SHA-256 by path


@dataclass(frozen=True)
class _Index:
    fence: int
    files: Files

    def dump(self) -> bytes:
        return json.dumps({"fence": self.fence, "files": self.files}, indent=1, sort_keys=True).encode()


class StoredCheckpoints:
    """The checkpoints of one job in a shared store, as one attempt sees them."""

    def __init__(self, store: ObjectStore, job_id: str, fence: int) -> None:
        self._store, self._fence = store, fence
        self._folder = f"{CHECKPOINTS}/{job_id}"
        self._hashes: dict[tuple[int, ...], str] = {}

    def restore(self, folder: Path) -> list[str]:
        """Makes the folder equal to the newest index, unless it is already, or has gone on from it.

        Returns the names of files that are damaged or missing in the store: they are left out, so that the training
        continues from an older checkpoint. It is called right after the claim: then this attempt is the job's newest,
        also where an older registry was put back and counts its fences from a lower number.
        """
        file = folder / SYNCED
        synced = _parse_index(file.read_bytes()) if file.is_file() else None
        newest = self._newest(synced)
        if newest is None:
            return []
        damaged = [] if synced == newest else self._replace(folder, newest)
        if max(self._fences(), default=0) >= self._fence:
            self._take_over(folder, newest)
        return damaged

    def _replace(self, folder: Path, newest: _Index) -> list[str]:
        aside = aside_of(folder, "restored")
        shutil.rmtree(aside, ignore_errors=True)
        damaged = [name for name, sha256 in newest.files.items() if not self._get(sha256, _inside(aside, name))]
        aside.mkdir(parents=True, exist_ok=True)
        _write_synced(aside, newest)
        shutil.rmtree(folder, ignore_errors=True)
        aside.rename(folder)
        return damaged

    def _take_over(self, folder: Path, newest: _Index) -> None:
        """Makes this attempt's index the newest one; else what it saves would not count."""
        self._write(folder, _Index(self._fence, newest.files))
        for fence in sorted(self._fences()):  # the newest is the last to go
            if fence > self._fence:
                self._store.remove(self._name(fence))

    def save(
        self, folder: Path, original: Path | None = None, before_each: Callable[[], object] = lambda: None
    ) -> None:
        """Uploads what is new in the folder, and then the index; files of older indexes go.

        The folder may be a snapshot of the `original`. `before_each` is called before each file and may raise: then, as
        after StoreFailedError, the last index counts.
        """
        index = _Index(self._fence, dict(self._files(folder)))
        before, present = self._newest(), self._store.names(f"{self._folder}/files")
        for name, sha256 in index.files.items():
            if sha256 not in present:
                before_each()
                self._store.put(folder / name, f"{self._folder}/files/{sha256}")
        before_each()
        self._write(original or folder, index)
        superseded = set(before.files.values() if before else ()) - set(index.files.values())
        if max(self._fences(), default=0) == self._fence:  # else the lease was lost, and a newer index may need them
            for sha256 in superseded:
                self._store.remove(f"{self._folder}/files/{sha256}")

    def remove(self) -> None:
        """Removes all of the job's checkpoints from the store."""
        self._store.remove(self._folder)

    def _newest(self, synced: _Index | None = None) -> _Index | None:
        """The index with the highest fence of those that can be read; of a damaged one, the folder's note will do."""
        for fence in sorted(self._fences(), reverse=True):
            if (index := _parse_index(self._store.read(self._name(fence)) or b"")) is not None:
                return index
            if synced is not None and synced.fence == fence:
                return synced
        return None

    def _fences(self) -> list[int]:
        names = self._store.names(self._folder)
        return [int(match[1]) for name in names if (match := _INDEX.fullmatch(name))]

    def _name(self, fence: int) -> str:
        return f"{self._folder}/index-{fence:08d}.json"

    def _write(self, folder: Path, index: _Index) -> None:
        self._store.write(self._name(index.fence), index.dump())
        _write_synced(folder, index)

    def _get(self, sha256: str, path: Path) -> bool:
        try:
            self._store.get_verified(f"{self._folder}/files/{sha256}", path, sha256)
        except StoreFailedError:
            raise
        except StorageError:
            return False
        return True

    def _files(self, folder: Path) -> Iterator[tuple[str, str]]:
        """The files of a folder with their hashes; those that are being written are left out."""
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            if path.is_file() and not any(part.startswith(".") for part in name.parts):
                yield name.as_posix(), self._sha256(path)

    def _sha256(self, path: Path) -> str:
        status = path.stat()
        key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)  # the same for a hard link
        if key not in self._hashes:
            self._hashes[key] = sha256_of(path)
        return self._hashes[key]


def _inside(folder: Path, name: str) -> Path:
    parts = PurePosixPath(name).parts
    if not parts or parts[0] == "/" or ".." in parts:
        raise StorageError(f"An index of checkpoints names a file outside its folder: {name[:60]!r}.", "Remove it.")
    return folder / name


def _parse_index(content: bytes) -> _Index | None:
    """An index; None if it is damaged."""
    try:
        values: Mapping[str, object] = json.loads(content)
        files = values["files"]
        assert isinstance(files, dict)
        return _Index(int(str(values["fence"])), {str(name): str(sha256) for name, sha256 in files.items()})
    except (ValueError, KeyError, TypeError, AssertionError):
        return None


def _write_synced(folder: Path, index: _Index) -> None:
    with new_file(folder / SYNCED) as file:
        file.write_bytes(index.dump())
