"""Make a mixture of experts that other jobs train."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from workbench.formatting.number_format import pluralize
from workbench.kinds.kind import Kind, ResultLink, named, no_path
from workbench.specs.base import ExpertName, Name
from workbench.specs.base import Spec as Spec
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


KIND = Kind(
    spec=MakeMixture,
    title="Make mixture",
    creates=lambda spec: named("mixture", spec.name),
    requires=lambda spec: [*named("clustering", spec.clustering), *named("expert", *spec.experts)],
    reads=no_path,
    may_replace=lambda spec: spec.replace,
    sentence=lambda result: f"{pluralize(len(result['experts']), 'expert')} in the mixture {result['mixture']}.",
    link=ResultLink("mixtures", "See the mixture", lambda result: {"mixture": result["mixture"]}),
)
