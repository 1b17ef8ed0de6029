"""Pack an expert into one file for another workbench."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from workbench.formatting.number_format import amount
from workbench.kinds.kind import Kind, Result, expert_link, no_path, nothing
from workbench.specs.base import ExpertName, LocalPath, Spec
from workbench.specs.outputs import output_complaints

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


class PackExpert(Spec):
    """Pack an expert into one verified file that another workbench unpacks."""

    kind: Literal["pack-expert"] = "pack-expert"
    expert: ExpertName = Field(description="Expert to pack.")
    file: LocalPath = Field(min_length=1, description="File to write; it must not exist yet.")
    with_seed: bool = Field(False, description="Pack its seed model, too, for workbenches that do not have it.")


def _complaints(session: Session, spec: PackExpert) -> list[str]:
    from sqlalchemy import select  # here, since a spec is read without the registry

    from workbench.schema.tables import Expert

    row = session.scalar(select(Expert).where(Expert.name == spec.expert))
    if row is not None and row.artifact_id == row.base_id:
        return [f"“{spec.expert}” is a seed model as it is: pack one of its experts, with the seed."]
    if complaints := output_complaints(spec.file, "file"):
        return complaints
    if not Path(spec.file).parent.is_dir():
        return [f"There is no folder {Path(spec.file).parent}: make it first, or choose another."]
    return []


def _sentence(result: Result) -> str:
    seed = " with its seed model" if result["with_seed"] else ""
    return f"{result['expert']}{seed} is in {result['file']} ({amount(result['num_bytes'], 'B')})."


KIND = Kind(
    spec=PackExpert,
    title="Pack expert",
    creates=nothing,
    requires=lambda spec: [("expert", spec.expert)],
    reads=no_path,
    complaints=_complaints,
    command="expert pack EXPERT FILE",
    sentence=_sentence,
    link=expert_link("See the expert"),
    runner="jobs.kinds.training.exports:pack",
)
