"""Records of artifacts, `records/ID.json` next to the artifacts: copies of their rows in the registry.

They lie outside the artifacts, whose files never change. `workbench.store.row_records` writes them;
`workbench.store.rebuild` turns them into rows again.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from engine.files import aside_pattern, new_file

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
