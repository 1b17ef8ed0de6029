"""Measure the bigram overlap of domains."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from workbench.formatting.number_format import pluralize
from workbench.kinds.kind import Kind, ResultLink, named, no_path, nothing
from workbench.specs.base import Name
from workbench.specs.base import Spec as Spec


class MeasureOverlap(Spec):
    """Measure the share of frequent bigrams that every two domains have in common (DEMix §4.4)."""

    kind: Literal["measure-overlap"] = "measure-overlap"
    domains: list[Name] = Field(default_factory=list, description="Domains to compare, at least two; empty takes all.")

    @field_validator("domains")
    @classmethod
    def _several(cls, names: list[str]) -> list[str]:
        if names and len(set(names)) < max(2, len(names)):
            raise ValueError("name at least two domains, each once")
        return names


KIND = Kind(
    spec=MeasureOverlap,
    title="Measure overlap",
    creates=nothing,
    requires=lambda spec: named("domain", *spec.domains),
    reads=no_path,
    empty_means_all_domains=True,
    command="evaluate overlap",
    sentence=lambda result: f"The overlap of every pair of {pluralize(len(result['domains']), 'domain')} is measured.",
    link=ResultLink("specialization", "See what it explains", lambda _: {"specialization.view": "Overlap"}),
)
