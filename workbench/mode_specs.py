"""What a person may ask for about MoDE: its two stages."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from engine.config import TrainingConfig
from engine.methods.mode.config import ModeConfig
from workbench.spec_base import RETAIN, ExpertName, Name, Spec, require_others


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


class ComposeMode(Spec):
    """Put trained experts side by side on their backbone, and let their gates learn together (MoDE §3.2, stage 2).

    With an expert that is composed already, others join it; `without` takes parts out. Nothing starts again.
    """

    kind: Literal["compose-mode"] = "compose-mode"
    name: Name = Field(description="Name of the mixture that will hold the composition; it is called NAME/composed.")
    experts: list[ExpertName] = Field(
        min_length=1, description="Experts of MoDE on one backbone, their parts side by side."
    )
    without: list[str] = Field(
        default_factory=list, description="Parts to leave out, by the names that they have in the composition."
    )
    domains: list[Name] = Field(
        default_factory=list,
        description="Domains of the mixed text, equal samples of each; empty: put together without training.",
    )
    frozen: bool = Field(False, description="Only the gates learn; otherwise the experts do, too (paper: better).")
    training: TrainingConfig = Field(default_factory=TrainingConfig, description="How to train.")
    retain: list[Name] = Field(default_factory=list, description=RETAIN)

    @model_validator(mode="after")
    def _distinct(self) -> ComposeMode:
        if self.frozen and not self.domains:
            raise ValueError("gates can learn alone (frozen) only from text: name the domains, or leave frozen out")
        for what, names in (("expert", self.experts), ("part", self.without), ("domain", self.domains)):
            if len(set(names)) < len(names):
                raise ValueError(f"name each {what} once")
        if self.retain and not self.domains:
            raise ValueError("domains to retain are looked at while it trains: give domains to train on, too")
        require_others(self.retain, self.domains)
        return self

    @property
    def expert(self) -> str:
        """What the composition is called."""
        return f"{self.name}/composed"
