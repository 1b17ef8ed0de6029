"""Export an expert for other tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from workbench.formatting.number_format import amount
from workbench.kinds.kind import Kind, Result, expert_link, no_path, nothing
from workbench.specs.base import ExpertName, LocalPath, Spec
from workbench.specs.outputs import output_complaints

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


class ExportExpert(Spec):
    """Export an expert as a folder that transformers, PEFT or llama.cpp loads."""

    kind: Literal["export-expert"] = "export-expert"
    expert: ExpertName = Field(description="Expert to export.")
    folder: LocalPath = Field(min_length=1, description="Folder to write; it must not exist yet.")
    format: Literal["hf", "peft", "gguf"] = Field(
        "hf",
        description="hf: the expert with its base as one model for transformers; peft: a LoRA adapter alone; gguf: "
        "the model for llama.cpp, by its converter.",
    )


def format_complaints(session: Session, expert: str, format: str) -> list[str]:
    """Why an expert cannot leave in a format; empty if it can, or does not exist."""
    from sqlalchemy import select  # here, since a spec is read without the registry

    from engine.methods.registry import method_of
    from workbench.schema.tables import Expert

    row = session.scalar(select(Expert).where(Expert.name == expert))
    if row is None:
        return []
    method = method_of(row.method)
    if format == "peft" and not method.is_adapter:
        return [f"“{expert}” is no LoRA adapter, its method is {method.title}: export it as hf."]
    if format != "peft" and method.no_decoder_because:
        return [f"“{expert}” cannot be exported as one model: it {method.no_decoder_because}."]
    return []


def _complaints(session: Session, spec: ExportExpert) -> list[str]:
    return [*output_complaints(spec.folder, "folder"), *format_complaints(session, spec.expert, spec.format)]


LOADED_BY = {  # the formats of experts and mixtures
    "hf": "AutoModelForCausalLM.from_pretrained",
    "moe": "AutoModelForCausalLM.from_pretrained",
    "peft": "PeftModel.from_pretrained",
    "gguf": "llama-cli -m",
}


def _sentence(result: Result) -> str:
    written = f"{result['expert']} is in {result['folder']} ({amount(result['num_bytes'], 'B')})"
    return f"{written}: load it with {LOADED_BY[result['format']]}."


KIND = Kind(
    spec=ExportExpert,
    title="Export expert",
    creates=nothing,
    requires=lambda spec: [("expert", spec.expert)],
    reads=no_path,
    complaints=_complaints,
    command="expert export EXPERT FOLDER",
    sentence=_sentence,
    link=expert_link("See the expert"),
    runner="jobs.kinds.training.exports:export",
)
