"""Compose experts with parts on their backbone (MoDE, stage 2)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from engine.config import TrainingConfig
from workbench.kinds.kind import Kind, Probe, expert_link, named, no_path, training_probe
from workbench.kinds.training.train_mode import parts_sentence
from workbench.specs.base import GPU_SHARE, RETAIN, RETAIN_TITLE, ExpertName, Name, Spec, require_others

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


class ComposeMode(Spec):
    """Compose trained experts on their backbone and train their gates together (MoDE §3.2, stage 2).

    Others can join an expert that is composed already; `without` leaves parts out. Training continues from the parts.
    """

    kind: Literal["compose-mode"] = "compose-mode"
    name: Name = Field(description="Name of the mixture; its expert, the composition, is called NAME/composed.")
    experts: list[ExpertName] = Field(
        min_length=1, description="Experts with parts on one backbone, whose parts are composed."
    )
    without: list[str] = Field(
        default_factory=list,
        title="Parts to leave out",
        description="Parts to leave out, by their names in the composition.",
    )
    domains: list[Name] = Field(
        default_factory=list,
        description="Domains to train on, equal samples of each; empty: compose without training.",
    )
    frozen: bool = Field(
        False,
        title="Frozen: only the gates learn",
        description="Train only the gates; otherwise the experts too (paper: better).",
    )
    training: TrainingConfig = Field(
        default_factory=TrainingConfig, title="Training details", description="How to train."
    )
    retain: list[Name] = Field(default_factory=list, title=RETAIN_TITLE, description=RETAIN)
    gpu_share: float = Field(1.0, gt=0, le=1, title="Share of a GPU", description=GPU_SHARE)

    @model_validator(mode="after")
    def _distinct(self) -> ComposeMode:
        if self.frozen and not self.domains:
            raise ValueError("frozen trains the gates only, which needs text: name domains, or leave frozen out")
        for what, names in (("expert", self.experts), ("part", self.without), ("domain", self.domains)):
            if len(set(names)) < len(names):
                raise ValueError(f"name each {what} once")
        if self.retain and not self.domains:
            raise ValueError("domains to retain are evaluated during training: give domains to train on too")
        require_others(self.retain, self.domains)
        return self

    @property
    def expert(self) -> str:
        """The name of the composition."""
        return f"{self.name}/composed"


def _complaints(session: Session, spec: ComposeMode) -> list[str]:
    from workbench.schema.composition import composition_complaints  # reads tables, which a spec does not need

    return composition_complaints(session, spec.experts, spec.without, bool(spec.domains))


def _with_rate(spec: ComposeMode) -> ComposeMode:
    training = replace(spec.training, learning_rate=spec.training.peak_rate)
    return spec.model_copy(update={"training": training})


KIND = Kind(
    spec=ComposeMode,
    title="Compose experts into",
    creates=lambda spec: [("expert", spec.expert), ("mixture", spec.name)],
    requires=lambda spec: [*named("expert", *spec.experts), *named("domain", *spec.domains, *spec.retain)],
    reads=no_path,
    complaints=_complaints,
    settled=lambda _, spec: _with_rate(spec),
    leaves_backbone=True,
    probe=lambda spec: training_probe(spec, ("expert", spec.experts[0])) if spec.domains else Probe(spec),
    replayed=lambda spec: spec.model_copy(update={"retain": []}),
    uses_gpu=True,
    uses_processes=True,
    command="mode compose NAME",
    sentence=parts_sentence,
    link=expert_link("See the composition"),
    runner="jobs.kinds.training.parts:compose",
)
