"""The specs that belong to no kind of job: a mixture, and plans of several jobs."""

from __future__ import annotations

from dataclasses import dataclass

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
class Step:
    """One job of a plan; `after` holds the keys of the jobs it waits for."""

    key: str
    spec: Spec
    title: str
    after: tuple[str, ...] = ()
