"""Export an expert as a folder for another tool."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from engine.events import Event
from jobs.attempt.work import Register, Work
from jobs.kinds.shared.exports import exported_expert, write_expert, writing, written
from jobs.kinds.shared.outputs import is_written, output_bytes, output_folder
from workbench.kinds.training.exchange import ExportExpert


def run(work: Work, spec: ExportExpert) -> Generator[Event, None, Register]:
    """Writes the folder and says what is in it."""
    target = Path(spec.folder)
    yield writing()
    if not is_written(work, target, "folder"):
        expert = exported_expert(work, spec.expert, spec.format)
        with output_folder(work, target) as folder:
            yield from write_expert(work, expert, folder)
    num_bytes = output_bytes(target)
    yield written()

    def register(_: Session) -> dict[str, Any]:
        return {"expert": spec.expert, "folder": spec.folder, "format": spec.format, "num_bytes": num_bytes}

    return register
