"""What specs of trainings share that choose a method: its settings, in a group of their own or as `options`; its rate.

What an update of 1e-3 means depends on what it changes. Random weights learn at it, and so does what stands next to a
frozen seed: low-rank changes (LoRA), layers with a gate (MoDE). Weights of the seed itself that were trained before, at
home or elsewhere, are destroyed by it and learn at 1e-4.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import JsonValue, field_validator, model_validator

from engine.config import TRAINED_RATE, default_rate
from engine.errors import EngineError
from engine.methods.base import Method
from engine.methods.registry import get_method
from workbench.schema.job_states import UNFINISHED
from workbench.specs.base import Spec

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
_TOO_HIGH = 3  # times the usual rate


def is_random(session: Session, seed_model: str) -> bool:
    """Whether a seed model, or one that a job still makes, has random weights."""
    from sqlalchemy import select  # here, since a spec is read without the registry

    from workbench.kinds.kind import known_kinds, parse_spec
    from workbench.schema.tables import Job, SeedModel

    source = session.scalar(select(SeedModel.source).where(SeedModel.name == seed_model))
    if source is not None:
        return source == _FRESH
    kinds = known_kinds()  # a job may be of a kind that is no longer installed
    coming = session.scalars(select(Job).where(Job.state.in_(UNFINISHED), Job.kind.in_(kinds)))
    fresh = (job for job in coming if job.spec.get("name") == seed_model and job.spec.get("source", _FRESH) == _FRESH)
    return any(("seed model", seed_model) in kinds[job.kind].creates(parse_spec(job.spec)) for job in fresh)


def learns_trained_weights(session: Session, method: Method, seed_model: str) -> bool:
    """Whether a training changes weights that were trained before."""
    return not method.base_is_frozen and not is_random(session, seed_model)


def with_rate(session: Session, spec: Any, method: str) -> Any:
    """The spec of a training from `seed_model` with a learning rate."""
    if spec.training.learning_rate is not None:
        return spec
    rate = default_rate(learns_trained_weights(session, get_method(method), spec.seed_model))
    training = replace(spec.training, learning_rate=rate)
    return spec.model_copy(update={"training": training})


def advice(session: Session, spec: Any, method: str) -> list[str]:
    """What to know of the learning rate: the one that is chosen, or that the given one is known to do harm."""
    rate, learns = spec.training.learning_rate, learns_trained_weights(session, get_method(method), spec.seed_model)
    if rate is None:
        what = "weights that were trained before" if learns else "weights that are new"
        return [f"The peak learning rate is {default_rate(learns):g}, the default for {what}."]
    if not learns or rate <= _TOO_HIGH * TRAINED_RATE:
        return []
    return [
        f"The peak learning rate {rate:g} is known to destroy what a trained seed model can do: “{spec.seed_model}” "
        f"was trained before, and the method {method} changes such weights. The default is {TRAINED_RATE:g}."
    ]
