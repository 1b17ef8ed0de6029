"""Make a domain of chosen documents of a clustering."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

from pydantic import Field, model_validator

from workbench.kinds.kind import Kind, named, no_path
from workbench.spec_base import Name, Spec


class MakeDomain(Spec):
    """Make a domain of chosen documents of a clustering, wherever they came from; what is held out stays held out."""

    kind: Literal["make-domain"] = "make-domain"
    clustering: Name = Field(description="Name of the clustering.")
    name: Name = Field(description="Name of the new domain.")
    areas: list[str] = Field(
        default_factory=list,
        description="Areas on the map, each the numbers x y of one corner after another; empty: anywhere.",
    )
    clusters: list[str] = Field(
        default_factory=list, description="Clusters to take documents of, by number or name; empty: of any."
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
        raise ValueError(f"an area must be numbers, but is “{area[:40]}”") from None
    if len(numbers) < 6 or len(numbers) % 2 or not all(map(math.isfinite, numbers)):
        raise ValueError(f"an area must be pairs of numbers for three corners or more, but is “{area[:40]}”")
    pairs: Iterator[float] = iter(numbers)
    return list(zip(pairs, pairs, strict=True))


KIND = Kind(
    spec=MakeDomain,
    title="Make domain",
    creates=lambda spec: [("corpus", spec.name), ("domain", spec.name)],
    requires=lambda spec: named("clustering", spec.clustering),
    reads=no_path,
)
