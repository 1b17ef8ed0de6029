"""What specs of trainings share that choose a method: its settings, in a group of their own or as `options`; its rate.

What an update of 1e-3 means depends on what it changes. Random weights learn at it, and so does what stands next to a
frozen seed: low-rank changes (LoRA), layers with a gate (MoDE). Weights of the seed itself that were trained before, at
home or elsewhere, are destroyed by it and learn at 3e-5.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import JsonValue, field_validator, model_validator

from engine.config import NEW_STEPS, PRETRAINED_STEPS, TRAINED_RATE, default_rate
from engine.errors import EngineError
from engine.methods.base import Method
from engine.methods.registry import get_method
from workbench.schema.job_states import UNFINISHED
from workbench.specs.base import RegistryObject, Spec

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


OPTIONS = "Settings of a method that has no group of its own, as a JSON object."


class MethodSettings(Spec):
    """A spec with the fields `method` and `options`; groups of settings are named by the methods' `config_field`."""

    if TYPE_CHECKING:
        method: str
        options: dict[str, JsonValue]

    offered: ClassVar[Callable[[], Mapping[str, Method]]]  # the methods to choose from, the usual one first

    @field_validator("method", check_fields=False)
    @classmethod
    def _is_offered(cls, value: str) -> str:
        if value not in cls.offered():
            raise ValueError(f"there is no such method; choose one of {', '.join(cls.offered())}")
        return value

    @field_validator("options", mode="before", check_fields=False)
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return json.loads(value) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check_settings(self) -> Self:
        method = get_method(self.method)
        if self.options and method.config_field != "options":
            raise ValueError(f"options must be empty with the method {self.method}: set {method.config_field} instead")
        try:
            _ = self.method_config
        except EngineError as error:
            raise ValueError(str(error).rstrip(".")) from None
        return self

    @property
    def method_config(self) -> Any:
        """The settings of this spec's method, as its own dataclass; None if it has none."""
        method = get_method(self.method)
        group = getattr(self, method.config_field)
        return method.config_from(group) if group is self.options else group


_FRESH = "fresh"  # the source of a seed with random weights
_TOO_HIGH = 10  # times the usual rate


@dataclass(frozen=True)
class Default:
    """The default of a setting that a spec leaves open, and where it comes from."""

    value: float
    source: str


def training_defaults(method: Method, is_pretrained: bool) -> dict[str, Default]:
    """The defaults of the settings that a training leaves open, by their names in `training`.

    `is_pretrained`: the weights of the seed model did not begin at random here.
    """
    is_changed = is_pretrained and method.learns_trained_weights
    rate, steps = default_rate(is_changed), PRETRAINED_STEPS if is_pretrained else NEW_STEPS
    if is_changed:
        source = "the default for weights that were trained before, measured on SmolLM2-135M (docs/real_models.md)"
    elif is_pretrained:
        source = "the default for what is added to a frozen seed model, measured on SmolLM2-135M (docs/real_models.md)"
    else:
        source = "the default for weights that are new"
    of_steps = "a pretrained seed model" if is_pretrained else "a seed model with random weights"
    return {"learning_rate": Default(rate, source), "num_steps": Default(steps, f"the default for {of_steps}")}


def is_random(session: Session, seed_model: str) -> bool:
    """Whether a seed model, or one that a job still makes, has random weights: it is pretrained otherwise."""
    from sqlalchemy import select  # here, since a spec is read without the registry

    from workbench.schema.tables import SeedModel

    source = session.scalar(select(SeedModel.source).where(SeedModel.name == seed_model))
    if source is None and (coming := _coming_spec(session, ("seed model", seed_model))):
        source = coming.get("source", _FRESH)
    return source == _FRESH


def seed_beneath(session: Session, thing: RegistryObject) -> str:
    """The name of a seed model, or of that of an expert or of a mixture's first expert; empty if unknown.

    What a job still makes counts as well.
    """
    from sqlalchemy import select

    from workbench.schema.tables import Expert, Mixture

    what, name = thing
    if what == "seed model":
        return name
    if what == "mixture":
        mixture = session.scalar(select(Mixture).where(Mixture.name == name))
        expert = mixture.members[0].expert if mixture and mixture.members else None
    else:
        expert = session.scalar(select(Expert).where(Expert.name == name))
    if expert is None:
        return str(_coming_spec(session, thing).get("seed_model", ""))
    return expert.seed.name if expert.seed else ""


def _coming_spec(session: Session, thing: RegistryObject) -> dict[str, Any]:
    """The spec of the job that still makes this; empty where there is none."""
    from sqlalchemy import select

    from workbench.kinds.kind import known_kinds, parse_spec
    from workbench.schema.job_tables import Job

    kinds = known_kinds()  # a job may be of a kind that is no longer installed
    coming = session.scalars(select(Job).where(Job.state.in_(UNFINISHED), Job.kind.in_(kinds)))
    named = (
        job for job in coming if job.spec.get("name") == thing[1].partition("/")[0] or job.spec.get("name") == thing[1]
    )
    return next((job.spec for job in named if thing in kinds[job.kind].creates(parse_spec(job.spec))), {})


Open = Collection[str]  # names of settings of `training` that a spec may leave open
OPEN: Open = ("learning_rate", "num_steps")


def with_defaults(session: Session, spec: Any, method: str, start: RegistryObject, names: Open = OPEN) -> Any:
    """The spec of a training from `start` with a number in each of these settings that it leaves open."""
    chosen = {name: default.value for name, default in _defaults(session, spec, method, start, names).items()}
    return spec.model_copy(update={"training": replace(spec.training, **chosen)}) if chosen else spec


def advice(session: Session, spec: Any, method: str, start: RegistryObject, names: Open = OPEN) -> list[str]:
    """What to know of a training's settings: those that are chosen and why, or that a rate is known to do harm."""
    chosen = _defaults(session, spec, method, start, names)
    sentences = [f"{_TITLES[name]} {default.value:g}: {default.source}." for name, default in chosen.items()]
    rate, is_new = spec.training.learning_rate, not get_method(method).learns_trained_weights
    if "learning_rate" not in names or rate is None or is_new or rate <= _TOO_HIGH * TRAINED_RATE:
        return sentences
    seed_model = seed_beneath(session, start)
    if is_random(session, seed_model):
        return sentences
    return [
        f"The peak learning rate {rate:g} is known to destroy what a trained seed model can do: “{seed_model}” "
        f"was trained before, and the method {method} changes such weights. The default is {TRAINED_RATE:g}.",
        *sentences,
    ]


_TITLES = {"learning_rate": "Peak learning rate", "num_steps": "Steps"}


def _defaults(session: Session, spec: Any, method: str, start: RegistryObject, names: Open) -> dict[str, Default]:
    left = [name for name in names if getattr(spec.training, name) is None]
    if not left:  # reading what jobs still make takes a while
        return {}
    defaults = training_defaults(get_method(method), not is_random(session, seed_beneath(session, start)))
    return {name: defaults[name] for name in left}
