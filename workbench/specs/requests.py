"""What belongs to no kind of job: a mixture, plans of several jobs, and a request to a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

from pydantic import Field, model_validator

from engine.config import TrainingConfig
from workbench.specs.base import ExpertName, Name, Spec, Stem
from workbench.specs.gates import AnyGate, default_gate


class TrainClusters(Spec):
    """Branch, train, merge (C-BTM §2.2): one model for each cluster, then a mixture of them.

    A plan of jobs: one for each cluster, and one that creates the mixture. With one cluster it is the dense baseline.
    Models start from one seed model or, in a further iteration, from trained experts.
    """

    clustering: Name = Field(description="Clustering whose clusters are trained on, one model each.")
    name: Stem = Field(description="Name of the mixture; the models are called NAME/NUMBER.")
    seed_model: Name | None = Field(None, description="Seed model that each of them starts from.")
    branch_from: Name | None = Field(
        None,
        description="Mixture of trained experts to start from instead: each model starts from the expert trained on "
        "most of its cluster's documents, or if there is none, from the nearest by the posterior.",
    )
    training: TrainingConfig = Field(
        default_factory=lambda: TrainingConfig(warmup=0.0, num_steps=1000),
        title="Training details",
        description="How to train (paper: no warm-up). The steps are those of all models together, so that the number "
        "of tokens does not depend on the number of clusters.",
    )

    @model_validator(mode="after")
    def _one_start(self) -> TrainClusters:
        if (self.seed_model is None) == (self.branch_from is None):
            raise ValueError("give a seed model to start from, or a mixture to branch from, and not both")
        return self


class MixtureSpec(Spec):
    """A named composition of experts, made immediately and without a job."""

    name: Name = Field(description="Name of the mixture.")
    experts: list[ExpertName] = Field(
        min_length=1, description="Experts that share a tokenizer; seed:NAME is a seed model as it is."
    )
    weights: list[float] | None = Field(None, description="Prior (or fixed) weight of each expert; empty: equal.")
    gate: AnyGate = Field(default_factory=default_gate, description="Gate that weighs the experts.")


@dataclass(frozen=True)
class PlanStep:
    """One job of a plan; `after` holds the keys of the jobs it waits for."""

    key: str
    spec: Spec
    title: str
    after: tuple[str, ...] = ()


class RequestChanges(TypedDict, total=False):
    """How a request differs from the stored model, as fields of an API request; the others are left out."""

    active: list[str]
    weights: dict[str, float]
    prior: str
    gate: dict[str, Any]  # fields of the gate's config that differ
    parts: dict[str, Sequence[str]]


@dataclass(frozen=True)
class MixtureRequest:
    """A model with the experts, weights, gate and parts for one request. Omitted fields keep their stored values."""

    model: str  # name of a mixture or an expert
    active: Sequence[str] | None = None  # active experts; None: those that are active in the mixture
    weights: Mapping[str, float] | None = None  # by expert; the weight of others is 0
    gate: Mapping[str, Any] = field(default_factory=dict)  # fields of GateConfig that differ
    prior: str | None = None  # name of a stored prior in the place of weights
    parts: Mapping[str, Sequence[str]] = field(default_factory=dict)  # by expert: the parts that are active

    def changes(self) -> RequestChanges:
        """The differences from the stored model, as the fields of an API request."""
        changes = RequestChanges()
        if self.active is not None:
            changes["active"] = list(self.active)
        if self.weights is not None:
            changes["weights"] = dict(self.weights)
        if self.prior is not None:
            changes["prior"] = self.prior
        if self.gate:
            changes["gate"] = dict(self.gate)
        if self.parts:
            changes["parts"] = dict(self.parts)
        return changes
