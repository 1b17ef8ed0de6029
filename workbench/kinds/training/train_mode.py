"""Train a MoDE expert beside a frozen seed model (MoDE, stage 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from engine.config import TrainingConfig
from engine.methods.mode.config import ModeConfig
from workbench.kinds.kind import Kind, named, no_path
from workbench.spec_base import RETAIN, Name, Spec, require_others

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


class TrainMode(Spec):
    """Train an expert of transformer layers beside a frozen backbone (MoDE §3.2, stage 1)."""

    kind: Literal["train-mode"] = "train-mode"
    name: Name = Field(
        description="Name of the mixture; its expert is called NAME/DOMAIN, or NAME/mixed for several domains."
    )
    seed_model: Name = Field(description="Seed model to use as the backbone; it does not change.")
    domains: list[Name] = Field(
        min_length=1, description="Domains to train on; equal samples of several are mixed (the baseline of stage 2)."
    )
    num_parts: int = Field(1, ge=1, le=64, description="Number of parallel experts, each trained on all text.")
    shape: ModeConfig = Field(
        default_factory=ModeConfig, description="Blocks, layers and initialization of the expert."
    )
    training: TrainingConfig = Field(default_factory=TrainingConfig, description="How to train.")
    retain: list[Name] = Field(default_factory=list, description=RETAIN)

    @model_validator(mode="after")
    def _distinct(self) -> TrainMode:
        if len(set(self.domains)) < len(self.domains):
            raise ValueError("name each domain once")
        if self.num_parts > 1 and self.shape.init == "copy":
            raise ValueError("several experts need the random init, since copies would learn the same")
        require_others(self.retain, self.domains)
        return self

    @property
    def expert(self) -> str:
        """The name of the expert."""
        return f"{self.name}/{self._text}"

    @property
    def parts(self) -> list[str]:
        """The names of the expert's parts."""
        return [self._text] if self.num_parts == 1 else [f"{self._text}-{i + 1}" for i in range(self.num_parts)]

    @property
    def _text(self) -> str:
        return self.domains[0] if len(self.domains) == 1 else "mixed"


def _complaints(session: Session, spec: TrainMode) -> list[str]:
    from workbench.analysis.mode_parts import mode_complaints  # reads the registry, which a spec does not need

    return mode_complaints(session, spec)


KIND = Kind(
    spec=TrainMode,
    title="Train MoDE expert",
    creates=lambda spec: [("expert", spec.expert), ("mixture", spec.name)],
    requires=lambda spec: [*named("seed model", spec.seed_model), *named("domain", *spec.domains, *spec.retain)],
    reads=no_path,
    complaints=_complaints,
)
