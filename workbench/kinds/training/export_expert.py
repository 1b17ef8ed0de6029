"""Export an expert for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from workbench.kinds.kind import Kind, no_path, nothing
from workbench.spec_base import ExpertName, LocalPath, Spec

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


class ExportExpert(Spec):
    """Export an expert as a folder that transformers or PEFT loads."""

    kind: Literal["export-expert"] = "export-expert"
    expert: ExpertName = Field(description="Expert to export.")
    folder: LocalPath = Field(min_length=1, description="Folder to write; it must not exist yet.")
    format: Literal["hf", "peft"] = Field(
        "hf", description="hf: the expert with its base as one model for transformers; peft: a LoRA adapter alone."
    )


def _complaints(session: Session, spec: ExportExpert) -> list[str]:
    from sqlalchemy import select  # here, since a spec is read without the registry

    from engine.methods.registry import method_of
    from workbench.tables import Expert

    complaints = []
    if Path(spec.folder).exists():
        complaints.append(f"{spec.folder} exists already: choose another folder, nothing is written over.")
    row = session.scalar(select(Expert).where(Expert.name == spec.expert))
    if row is None:
        return complaints
    method = method_of(row.method)
    if spec.format == "peft" and not method.is_adapter:
        complaints.append(f"“{spec.expert}” is no LoRA adapter, its method is {method.title}: export it as hf.")
    if spec.format == "hf" and method.no_decoder_because:
        complaints.append(f"“{spec.expert}” cannot be exported as one model: it {method.no_decoder_because}.")
    return complaints


KIND = Kind(
    spec=ExportExpert,
    title="Export expert",
    creates=nothing,
    requires=lambda spec: [("expert", spec.expert)],
    reads=no_path,
    complaints=_complaints,
)
