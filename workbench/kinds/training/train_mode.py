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
        description="Name of the mixture that will hold the expert; it is called NAME/DOMAIN, or NAME/mixed."
    )
    seed_model: Name = Field(description="Seed model that is the backbone; it stays as it is.")
    domains: list[Name] = Field(
        min_length=1, description="Domain to train on; of several, equal samples are mixed (what stage 2 is judged by)."
    )
    num_parts: int = Field(1, ge=1, le=64, description="Experts side by side, all trained on all of the text.")
    shape: ModeConfig = Field(default_factory=ModeConfig, description="Blocks, layers, and how the expert starts.")
    training: TrainingConfig = Field(default_factory=TrainingConfig, description="How to train.")
    retain: list[Name] = Field(default_factory=list, description=RETAIN)

    @model_validator(mode="after")
    def _distinct(self) -> TrainMode:
        if len(set(self.domains)) < len(self.domains):
            raise ValueError("name each domain once")
        if self.num_parts > 1 and self.shape.init == "copy":
            raise ValueError("several experts must start at random (init), since copies would learn alike for ever")
        require_others(self.retain, self.domains)
        return self

    @property
    def expert(self) -> str:
        """What the expert is called."""
        return f"{self.name}/{self._text}"

    @property
    def parts(self) -> list[str]:
        """What the expert's parts are called."""
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
