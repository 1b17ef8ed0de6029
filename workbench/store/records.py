"""Files that say what the registry knows of each artifact: `records/ID.json` beside the artifacts.

They lie outside the artifacts, whose files never change. `workbench.store.recording` writes them;
`workbench.store.rebuild` makes rows of them again.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

DELETED_AT = "deleted_at"  # in the record of an artifact that somebody deleted from the registry

_LEFT_SECONDS = 3600.0  # no file is written aside for so long

Record = dict[str, Any]


@contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """Yields a file of this writer's own beside `path` to fill: what is left of it at the end is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.new")
    try:
        yield aside
    finally:
        aside.unlink(missing_ok=True)


def write_synced(path: Path, text: str) -> None:
    """Writes a file that is on the disk afterwards, not only on its way there."""
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def remove_leftovers(folder: Path) -> None:
    """Deletes what writers that died had written aside in a folder of ours."""
    for path in folder.glob(".*.new"):
        with suppress(OSError):
            if path.is_file() and path.stat().st_mtime < time.time() - _LEFT_SECONDS:
                path.unlink()


class Records:
    """The records of one store. One that cannot be read counts as not there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, artifact_id: str) -> Path:
        return self.folder / f"{artifact_id}.json"

    def read(self, artifact_id: str) -> Record | None:
        """The record of an artifact; None where there is none."""
        with suppress(OSError, ValueError):
            found = json.loads(self.path(artifact_id).read_text(encoding="utf-8"))
            return found if isinstance(found, dict) else None
        return None

    def is_live(self, artifact_id: str) -> bool:
        """Whether some registry knew the artifact, and nobody deleted it since."""
        found = self.read(artifact_id)
        return found is not None and DELETED_AT not in found

    def write(self, artifact_id: str, record: Record) -> None:
        """Puts a record in place, whole or not at all; one that says the same is left alone."""
        if self.read(artifact_id) == record:
            return
        path = self.path(artifact_id)
        with written_aside(path) as aside:
            aside.write_text(json.dumps(record, indent=1, sort_keys=True), encoding="utf-8")
            aside.replace(path)

    def mark_deleted(self, artifact_id: str, at: float) -> None:
        """Notes that an artifact was deleted on purpose; what it was stays written."""
        self.write(artifact_id, {DELETED_AT: at, **(self.read(artifact_id) or {})})

    def clear_deleted(self, artifact_id: str) -> None:
        """Takes that note back; a record that holds nothing else goes."""
        found = self.read(artifact_id) or {}
        if found.pop(DELETED_AT, None) is not None and found:
            self.write(artifact_id, found)
        elif not found:
            self.remove(artifact_id)

    def remove(self, artifact_id: str) -> None:
        self.path(artifact_id).unlink(missing_ok=True)

    def ids(self) -> set[str]:
        """The ids of all artifacts with a record."""
        return {path.stem for path in self.folder.glob("*.json")}
