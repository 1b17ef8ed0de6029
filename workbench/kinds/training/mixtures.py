"""Kinds of job that put experts together: into a mixture, or into their average (BTM)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from workbench.formatting.number_format import pluralize
from workbench.kinds.kind import Kind, Probe, ResultLink, expert_link, named, no_path
from workbench.specs.base import ExpertName, Name, Spec
from workbench.specs.gates import AnyGate, default_gate


class MakeMixture(Spec):
    """Make a mixture after its experts were trained: the last step of a plan that trains them."""

    kind: Literal["make-mixture"] = "make-mixture"
    name: Name = Field(description="Name of the mixture.")
    experts: list[ExpertName] = Field(min_length=1, description="Experts that share a tokenizer.")
    weights: list[float] | None = Field(None, description="Prior (or fixed) weight of each expert; empty: equal.")
    gate: AnyGate = Field(default_factory=default_gate, description="Gate that weighs the experts.")
    clustering: Name | None = Field(None, description="Clustering for a cluster gate, by name, instead of `gate`.")
    replace: bool = Field(False, description="Replace the experts of an existing mixture with this name.")


MAKE_MIXTURE = Kind(
    spec=MakeMixture,
    title="Make mixture",
    creates=lambda spec: named("mixture", spec.name),
    requires=lambda spec: [*named("clustering", spec.clustering), *named("expert", *spec.experts)],
    reads=no_path,
    may_replace=lambda spec: spec.replace,
    sentence=lambda result: f"{pluralize(len(result['experts']), 'expert')} in the mixture {result['mixture']}.",
    link=ResultLink("mixtures", "See the mixture", lambda result: {"mixture": result["mixture"]}),
)


class AverageExperts(Spec):
    """Average the parameters of several experts into one model (BTM, Li et al. 2022, §3.3)."""

    kind: Literal["average-experts"] = "average-experts"
    name: Name = Field(description="Name of the mixture that will hold the average; the expert is called NAME/average.")
    experts: list[ExpertName] = Field(
        min_length=2, description="Experts to average, with the same architecture and seed model."
    )
    weights: list[float] | None = Field(None, description="Weight of each expert; empty: equal.")
    prior: Name | None = Field(None, description="Saved prior whose shares are the weights (BTM: a cached one).")

    @property
    def expert(self) -> str:
        """The name of the averaged expert."""
        return f"{self.name}/average"

    @model_validator(mode="after")
    def _weighable(self) -> AverageExperts:
        if len(set(self.experts)) < len(self.experts):
            raise ValueError("name each expert once")
        if self.weights is not None and self.prior is not None:
            raise ValueError("give weights or a prior, not both")
        if self.weights is not None:
            if len(self.weights) != len(self.experts):
                raise ValueError(f"give one weight for each of the {len(self.experts)} experts")
            if not (min(self.weights) >= 0 and 0 < sum(self.weights) < float("inf")):
                raise ValueError("weights must be 0 or more, and one of them above 0")
        return self


AVERAGE_EXPERTS = Kind(
    spec=AverageExperts,
    title="Average into",
    creates=lambda spec: [("expert", spec.expert), ("mixture", spec.name)],
    requires=lambda spec: [*named("expert", *spec.experts), *named("prior", spec.prior)],
    reads=no_path,
    probe=Probe,
    command="mixture average NAME",
    sentence=lambda result: (
        f"{pluralize(len(result['weights']), 'expert')} averaged in the mixture {result['mixture']}."
    ),
    link=expert_link("See the average"),
    runner="jobs.kinds.training.averages:average_experts",
)


KIND = (MAKE_MIXTURE, AVERAGE_EXPERTS)
