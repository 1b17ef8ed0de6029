"""What a person may ask for about MoDE: its two stages."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from engine.config import TrainingConfig
from engine.mode.config import ModeConfig
from workbench.spec_base import ExpertName, Name, Spec


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

    @model_validator(mode="after")
    def _distinct(self) -> TrainMode:
        if len(set(self.domains)) < len(self.domains):
            raise ValueError("name each domain once")
        return self

    @property
    def expert(self) -> str:
        """What the expert is called."""
        return f"{self.name}/{self.domains[0] if len(self.domains) == 1 else 'mixed'}"


class ComposeMode(Spec):
    """Put trained experts side by side on their backbone, and let their gates learn together (MoDE §3.2, stage 2).

    With an expert that is composed already, others join it; `without` takes parts out. Nothing starts again.
    """

    kind: Literal["compose-mode"] = "compose-mode"
    name: Name = Field(description="Name of the mixture that will hold the composition; it is called NAME/composed.")
    experts: list[ExpertName] = Field(
        min_length=1, description="Experts of MoDE on one backbone, their parts side by side."
    )
    without: list[str] = Field(default_factory=list, description="Parts to leave out, by the names of their experts.")
    domains: list[Name] = Field(
        default_factory=list,
        description="Domains of the mixed text, equal samples of each; empty: put together without training.",
    )
    frozen: bool = Field(False, description="Only the gates learn; otherwise the experts do, too (paper: better).")
    training: TrainingConfig = Field(default_factory=TrainingConfig, description="How to train.")

    @model_validator(mode="after")
    def _distinct(self) -> ComposeMode:
        for what, names in (("expert", self.experts), ("part", self.without), ("domain", self.domains)):
            if len(set(names)) < len(names):
                raise ValueError(f"name each {what} once")
        return self

    @property
    def expert(self) -> str:
        """What the composition is called."""
        return f"{self.name}/composed"
