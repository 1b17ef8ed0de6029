"""Make a domain of chosen documents of a clustering."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field, model_validator

from workbench.kinds.kind import Kind, Result, ResultLink, named, no_path
from workbench.specs.base import Name, Spec


class MakeDomain(Spec):
    """Make a domain of chosen documents of a clustering, from any domain. Held-out documents stay held out."""

    kind: Literal["make-domain"] = "make-domain"
    clustering: Name = Field(description="Name of the clustering.")
    name: Name = Field(description="Name of the new domain.")
    areas: list[str] = Field(
        default_factory=list,
        description="Areas on the map, each a list of corners x y x y …; empty: the entire map.",
    )
    clusters: list[str] = Field(
        default_factory=list, description="Clusters to take documents from, by number or name; empty: all."
    )

    @model_validator(mode="after")
    def _some(self) -> MakeDomain:
        if not (self.areas or self.clusters):
            raise ValueError("name areas, clusters, or both")
        for area in self.areas:
            _corners(area)
        return self

    @property
    def corners(self) -> list[list[tuple[float, float]]]:
        """The areas as corners."""
        return [_corners(area) for area in self.areas]


def _corners(area: str) -> list[tuple[float, float]]:
    try:
        numbers = [float(one) for one in area.split()]
    except ValueError:
        raise ValueError(f"an area must be numbers, not “{area[:40]}”") from None
    if len(numbers) < 6 or len(numbers) % 2 or not all(map(math.isfinite, numbers)):
        raise ValueError(f"an area must be pairs of numbers for at least three corners, not “{area[:40]}”")
    pairs: Iterator[float] = iter(numbers)
    return list(zip(pairs, pairs, strict=True))


def _dense_training(result: Result) -> dict[str, Any]:
    form = "DEMix, LoRA, MoE or dense"  # its title on the page Train
    return {"train.what": form, "train-joint.method": "dense", "train-joint.domains": [result["domain"]]}


KIND = Kind(
    spec=MakeDomain,
    title="Make domain",
    creates=lambda spec: [("corpus", spec.name), ("domain", spec.name)],
    requires=lambda spec: named("clustering", spec.clustering),
    reads=no_path,
    command="cluster choose CLUSTERING NAME",
    link=ResultLink("train", "Train on it", _dense_training),
    runner="jobs.kinds.clusters.domains:make_domain",
)
