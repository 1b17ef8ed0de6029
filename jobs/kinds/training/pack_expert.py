"""Pack an expert: its folder, the base where that is no seed model, and the seed model if requested, in one file."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from engine.events import Event, Progress
from engine.files import MANIFEST, ArtifactRef
from engine.packed_file import write_packed
from jobs.attempt.work import Register, Work
from jobs.kinds.shared.outputs import is_written, output_bytes, output_file
from workbench.errors import StorageError
from workbench.kinds.training.exchange import PackExpert
from workbench.registry.experts import expert_row
from workbench.registry.packed_experts import describe_packed


def run(work: Work, spec: PackExpert) -> Generator[Event, None, Register]:
    """Writes the file, unless an earlier attempt did."""
    with work.reading() as session:
        row = expert_row(session, spec.expert)
        described = describe_packed(row)
        folders = {"expert": work.storage.kept(row.artifact)}
        is_on_seed = row.seed is not None and row.base_id == row.seed.artifact_id
        if not is_on_seed:
            folders["base"] = work.storage.kept(row.base)
        if spec.with_seed and row.seed is not None:
            folders["seed"] = work.storage.kept(row.seed.artifact)
    if spec.with_seed and described.seed is None:
        raise StorageError(f"“{spec.expert}” has no seed model here.", "Pack it without: its base is packed anyway.")
    yield Progress(0, 1, "files", "writing")
    target = Path(spec.file)
    if not is_written(work, target, "file"):
        about = described.model_dump(mode="json")
        with output_file(work, target) as file:
            write_packed(file, about, {name: _files(kept) for name, kept in folders.items()})
    num_bytes = output_bytes(target)
    yield Progress(1, 1, "files", "done")

    def register(_: Session) -> dict[str, Any]:
        return {"expert": spec.expert, "file": spec.file, "with_seed": spec.with_seed, "num_bytes": num_bytes}

    return register


def _files(kept: ArtifactRef) -> dict[str, Path]:
    """The files of an artifact by their names, every byte checked; its manifest follows from them."""
    replace(kept, record=None).check()  # what is given away is hashed
    files = (file for file in kept.folder.rglob("*") if file.is_file() and file.name != MANIFEST)
    return {file.relative_to(kept.folder).as_posix(): file for file in files}
