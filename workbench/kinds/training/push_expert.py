"""Upload an expert to the Hugging Face hub."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field, field_validator

from workbench.kinds.kind import Kind, expert_link, no_path, nothing
from workbench.kinds.training.export_expert import format_complaints
from workbench.specs.base import ExpertName, Spec
from workbench.specs.hub_names import hub_origin

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from workbench.schema.tables import Expert


class PushExpert(Spec):
    """Upload an expert with its model card to a repository of the Hugging Face hub."""

    kind: Literal["push-expert"] = "push-expert"
    expert: ExpertName = Field(description="Expert to upload.")
    repository: str = Field(description="Repository on the hub, such as you/law; it is created if it is not there.")
    format: Literal["hf", "peft", "gguf"] = Field("hf", description="As of workbench expert export.")
    public: bool = Field(False, description="Create the repository so that everybody can read it.")

    @field_validator("repository")
    @classmethod
    def _valid(cls, value: str) -> str:
        from huggingface_hub.errors import HFValidationError
        from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

        try:
            validate_repo_id(value)
        except HFValidationError:
            raise ValueError(f"“{value}” is no name of a repository: give NAME, or USER/NAME") from None
        return value


def push_complaints(session: Session, spec: PushExpert) -> list[str]:
    """Why an expert cannot be pushed; empty if it can, or does not exist."""
    from sqlalchemy import select  # here, since a spec is read without the registry

    from workbench.schema.tables import Expert

    row = session.scalar(select(Expert).where(Expert.name == spec.expert))
    if row is not None and spec.format == "peft" and not _is_from_hub(row):
        return [f"The seed model of “{spec.expert}” is not from the hub, where nobody could find it: push it as hf."]
    return format_complaints(session, spec.expert, spec.format)


def _is_from_hub(row: Expert) -> bool:
    return row.seed is not None and bool(hub_origin(row.seed.source)[0])


KIND = Kind(
    spec=PushExpert,
    title="Push expert",
    creates=nothing,
    requires=lambda spec: [("expert", spec.expert)],
    reads=no_path,
    complaints=push_complaints,
    command="expert push EXPERT REPOSITORY",
    sentence=lambda result: f"{result['expert']} is at {result['url']} (commit {result['commit']}).",
    link=expert_link("See the expert"),
    runner="jobs.kinds.training.exports:push",
)
