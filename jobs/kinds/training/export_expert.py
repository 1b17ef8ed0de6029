"""Export an expert as a folder for another tool."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from engine.events import Event
from jobs.attempt.work import Register, Work
from jobs.kinds.shared.exports import (
    export_folder,
    exported_expert,
    refuse_existing,
    write_expert,
    writing,
    written,
    written_bytes,
)
from workbench.kinds.training.export_expert import ExportExpert


def run(work: Work, spec: ExportExpert) -> Generator[Event, None, Register]:
    """Writes the folder and says what is in it."""
    refuse_existing(Path(spec.folder))
    expert = exported_expert(work, spec.expert, spec.format)
    yield writing()
    with export_folder(work, Path(spec.folder)) as folder:
        yield from write_expert(work, expert, folder)
        num_bytes = written_bytes(folder)
    yield written()

    def register(_: Session) -> dict[str, Any]:
        return {"expert": spec.expert, "folder": spec.folder, "format": spec.format, "num_bytes": num_bytes}

    return register
