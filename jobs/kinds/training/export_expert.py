"""Export an expert as a folder for another tool."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from engine.events import Event
from jobs.attempt.work import Run, Work
from jobs.kinds.shared.exports import read_expert, write_expert, write_output
from workbench.kinds.training.export_expert import ExportExpert


def run(work: Work, spec: ExportExpert) -> Run:
    """Writes the folder and says what is in it."""

    def fill(folder: Path) -> Iterator[Event]:
        yield from write_expert(work, read_expert(work, spec.expert, spec.format), folder)

    num_bytes = yield from write_output(work, Path(spec.folder), fill)
    return {"expert": spec.expert, "folder": spec.folder, "format": spec.format, "num_bytes": num_bytes}
