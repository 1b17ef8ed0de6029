"""Kinds of job that train experts with parts next to a frozen seed model, and compose them (MoDE, stages 1 and 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, JsonValue, model_validator

from engine.config import TrainingConfig
from engine.events import BACKBONE
from engine.methods.mode.config import ModeConfig
from engine.methods.parts.method import PartsMethod, get_parts_method, parts_methods
from engine.models.flops import Shape
from workbench.formatting.number_format import listed
from workbench.kinds.analysis import Evaluate
from workbench.kinds.kind import CHAT_LINK, Kind, Probe, Result, expert_link, named, no_path, training_probe
from workbench.kinds.training.method_settings import (
    OPTIONS,
    MethodSettings,
    advice,
    with_defaults,
)
from workbench.kinds.training.train_joint import too_long_blocks
from workbench.specs.base import GPU_SHARE, RETAIN, RETAIN_TITLE, ExpertName, Name, Spec, require_others

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


class TrainMode(MethodSettings):
    """Train an expert of transformer layers next to a frozen backbone (MoDE §3.2, stage 1)."""

    offered: ClassVar = parts_methods

    kind: Literal["train-mode"] = "train-mode"
    name: Name = Field(
        description="Name of the mixture; its expert is called NAME/DOMAIN, or NAME/mixed for several domains."
    )
    seed_model: Name = Field(description="Seed model to use as the backbone; it does not change.")
    domains: list[Name] = Field(
        min_length=1, description="Domains to train on; equal samples of several are mixed (the baseline of stage 2)."
    )
    num_parts: int = Field(
        1,
        ge=1,
        le=64,
        title="Experts side by side",
        description="Number of parallel experts, each trained on all text.",
    )
    shape: ModeConfig = Field(
        default_factory=ModeConfig,
        title="Shape of the expert: blocks, layers, how it starts",
        description="Blocks, layers and initialization of the expert.",
    )
    method: str = Field("mode", description="Method of the expert: mode, or one with parts from an installed package.")
    options: dict[str, JsonValue] = Field(default_factory=dict, description=OPTIONS)
    training: TrainingConfig = Field(
        default_factory=TrainingConfig, title="Training details", description="How to train."
    )
    retain: list[Name] = Field(default_factory=list, title=RETAIN_TITLE, description=RETAIN)
    gpu_share: float = Field(1.0, gt=0, le=1, title="Share of a GPU", description=GPU_SHARE)

    @model_validator(mode="after")
    def _distinct(self) -> TrainMode:
        if len(set(self.domains)) < len(self.domains):
            raise ValueError("name each domain once")
        if self.num_parts > 1 and self.descriptor.starts_alike(self.method_config):
            raise ValueError("several experts need the random init, since copies would learn the same")
        require_others(self.retain, self.domains)
        return self

    @property
    def descriptor(self) -> PartsMethod:
        """The method."""
        return get_parts_method(self.method)

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
    from sqlalchemy import select  # here, since a spec is read without the registry

    from workbench.schema.tables import SeedModel

    seed = session.scalar(select(SeedModel).where(SeedModel.name == spec.seed_model))
    config = spec.method_config
    of_base = spec.descriptor.base_complaints(config, Shape.of(seed.config), seed.name) if seed else []
    complaints = [*of_base, *too_long_blocks(seed, spec.training.block_size)]
    if BACKBONE not in spec.parts:
        return complaints
    return [
        f"A part is named after its domain, and “{BACKBONE}” is the backbone's name: import the text as a domain of "
        "another name.",
        *complaints,
    ]


def parts_sentence(result: Result) -> str:
    """The sentence of a training of parts: which, their size and their mixture."""
    parts, size = listed(result["parts"]), f"{result['num_parameters']:,}"
    return f"{parts} next to the backbone, {size} parameters of their own, in the mixture {result['mixture']}."


TRAIN_MODE = Kind(
    spec=TrainMode,
    title="Train MoDE expert",
    creates=lambda spec: [("expert", spec.expert), ("mixture", spec.name)],
    requires=lambda spec: [*named("seed model", spec.seed_model), *named("domain", *spec.domains, *spec.retain)],
    reads=no_path,
    complaints=_complaints,
    settled=lambda session, spec: with_defaults(session, spec, spec.method, ("seed model", spec.seed_model)),
    advice=lambda session, spec: advice(session, spec, spec.method, ("seed model", spec.seed_model)),
    leaves_backbone=True,
    probe=lambda spec: training_probe(spec, ("seed model", spec.seed_model)),
    replayed=lambda spec: spec.model_copy(update={"retain": []}),
    follow_up=lambda spec: Evaluate(mixture=spec.name),
    first_step="experts",
    uses_gpu=True,
    uses_processes=lambda spec: get_parts_method(spec.get("method", "mode")).uses_processes,
    command="train mode NAME",
    sentence=parts_sentence,
    link=expert_link("See the expert", CHAT_LINK),
    runner="jobs.kinds.training.parts:train",
)


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


def _composition_complaints(session: Session, spec: ComposeMode) -> list[str]:
    from workbench.schema.composition import composition_complaints  # reads tables, which a spec does not need

    return composition_complaints(session, spec.experts, spec.without, bool(spec.domains))


COMPOSE_MODE = Kind(
    spec=ComposeMode,
    title="Compose experts into",
    creates=lambda spec: [("expert", spec.expert), ("mixture", spec.name)],
    requires=lambda spec: [*named("expert", *spec.experts), *named("domain", *spec.domains, *spec.retain)],
    reads=no_path,
    complaints=_composition_complaints,
    settled=lambda session, spec: with_defaults(session, spec, "mode", ("expert", spec.experts[0])),
    advice=lambda session, spec: advice(session, spec, "mode", ("expert", spec.experts[0])) if spec.domains else [],
    leaves_backbone=True,
    probe=lambda spec: training_probe(spec, ("expert", spec.experts[0])) if spec.domains else Probe(spec),
    replayed=lambda spec: spec.model_copy(update={"retain": []}),
    follow_up=lambda spec: Evaluate(mixture=spec.name),
    uses_gpu=True,
    uses_processes=True,
    command="mode compose NAME",
    sentence=parts_sentence,
    link=expert_link("See the composition", CHAT_LINK),
    runner="jobs.kinds.training.parts:compose",
)


KIND = (TRAIN_MODE, COMPOSE_MODE)
