"""Files that say what the registry knows of each artifact: `records/ID.json` beside the artifacts.

They lie outside the artifacts, whose files never change. `workbench.services.recording` writes them;
`workbench.services.rebuild` makes rows of them again.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

DELETED_AT = "deleted_at"  # in the record of an artifact that somebody deleted from the registry

Record = dict[str, Any]


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
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.path(artifact_id)
        aside = path.with_name(f".{path.name}.{os.getpid()}.new")
        try:
            aside.write_text(json.dumps(record, indent=1, sort_keys=True), encoding="utf-8")
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)

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
