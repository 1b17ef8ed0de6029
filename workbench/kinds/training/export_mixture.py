"""Export a mixture for other tools, as one model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from workbench.formatting.number_format import amount, pluralize
from workbench.kinds.kind import Kind, Result, ResultLink, no_path, nothing
from workbench.kinds.training.export_expert import LOADED_BY
from workbench.specs.base import LocalPath, Name, Spec
from workbench.specs.outputs import output_complaints

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from workbench.schema.tables import Mixture

MOE_FORMAT = "moe"  # one model that adds the outputs of several networks


class ExportMixture(Spec):
    """Export the experts of a mixture as one model: their average, or a mixture of experts of transformers."""

    kind: Literal["export-mixture"] = "export-mixture"
    mixture: Name = Field(description="Mixture to export.")
    folder: LocalPath = Field(min_length=1, description="Folder to write; it must not exist yet.")
    format: Literal["hf", "moe", "gguf"] = Field(
        "hf",
        description="hf: the weighted average of the active experts; moe: one model that adds the outputs of their "
        "feed-forward networks, with the weights of a fixed gate; gguf: the average for llama.cpp, by its converter.",
    )


def mixture_complaints(row: Mixture, format: str) -> list[str]:
    """Why a mixture cannot leave in a format; empty if nothing is against it that its rows show."""
    from engine.methods.registry import method_of
    from engine.mixing.gate_registry import gate_type
    from workbench.specs.gates import load_gate

    complaints = []
    gate = gate_type(load_gate(row.gate).kind)
    if format == MOE_FORMAT and not gate.is_constant:
        complaints.append(
            f"The gate “{gate.name}” weighs experts {gate.sentence}, which no checkpoint expresses: set fixed weights "
            "(workbench mixture gate NAME --gate fixed), or export the average (--format hf)."
        )
    members = [one for one in row.members if one.active and one.expert.enabled and one.weight > 0]
    for expert in (one.expert for one in members):
        if because := method_of(expert.method).no_decoder_because:
            complaints.append(f"“{expert.name}” cannot become a part of one model: it {because}.")
    if not members:
        complaints.append(f"“{row.name}” has no active expert: switch one on.")
    return complaints


def _complaints(session: Session, spec: ExportMixture) -> list[str]:
    from sqlalchemy import select  # here, since a spec is read without the registry

    from workbench.schema.tables import Mixture

    row = session.scalar(select(Mixture).where(Mixture.name == spec.mixture))
    return [*output_complaints(spec.folder, "folder"), *(mixture_complaints(row, spec.format) if row else ())]


def _sentence(result: Result) -> str:
    written = f"{pluralize(len(result['weights']), 'expert')} of {result['mixture']} as one model: {result['folder']}"
    return f"{written} ({amount(result['num_bytes'], 'B')}). Load it with {LOADED_BY[result['format']]}."


KIND = Kind(
    spec=ExportMixture,
    title="Export mixture",
    creates=nothing,
    requires=lambda spec: [("mixture", spec.mixture)],
    reads=no_path,
    complaints=_complaints,
    command="mixture export MIXTURE FOLDER",
    sentence=_sentence,
    link=ResultLink("mixtures", "See the mixture", lambda result: {"mixture": result["mixture"]}),
    runner="jobs.kinds.training.averages:export_mixture",
)
