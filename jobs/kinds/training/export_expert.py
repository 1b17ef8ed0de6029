"""Export an expert: a folder is written aside and renamed, so that a half-written one is never seen."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from engine.events import Event, Progress
from engine.files import new_folder
from engine.methods.export import export_model
from engine.methods.registry import method_of
from jobs.attempt.work import Register, Work
from workbench.errors import StorageError
from workbench.hub_names import hub_origin
from workbench.kinds.training.export_expert import ExportExpert
from workbench.registry.experts import expert_row


def run(work: Work, spec: ExportExpert) -> Generator[Event, None, Register]:
    """Writes the folder and says what is in it."""
    with work.reading() as session:
        row = expert_row(session, spec.expert)
        method = method_of(row.method)
        base, expert = work.storage.kept(row.base), work.storage.kept(row.artifact)
        source = row.seed.source if row.seed else ""
    hub_name, commit = hub_origin(source)
    yield Progress(0, 1, "folders", "writing")
    with _new_folder(Path(spec.folder)) as folder:
        if spec.format == "peft":
            method.export_adapter(base, expert, folder, base_model=hub_name or str(base.folder), revision=commit)
        else:
            export_model(method, base, expert, folder)
        num_bytes = sum(file.stat().st_size for file in folder.iterdir())
    yield Progress(1, 1, "folders", "done")

    def register(_: Session) -> dict[str, Any]:
        return {"expert": spec.expert, "folder": spec.folder, "format": spec.format, "num_bytes": num_bytes}

    return register


@contextmanager
def _new_folder(target: Path) -> Iterator[Path]:
    """A folder to fill, which gets its name and a manifest of hashes at the end; raises StorageError."""
    if target.exists():
        raise StorageError(f"{target} exists already.", "Choose another folder: nothing is written over.")
    try:
        with new_folder(target) as folder:
            yield folder
    except PermissionError as error:
        raise StorageError(f"{target} cannot be written: {error.strerror}.", "Choose a folder of yours.") from error
