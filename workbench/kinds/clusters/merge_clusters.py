"""Merge clusters."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from workbench.kinds.clusters.clustering_spec import clusters_link
from workbench.kinds.kind import Kind, named, no_path, nothing
from workbench.specs.base import Name, Spec


class MergeClusters(Spec):
    """Merge several clusters into one; experts trained on one of them become stale."""

    kind: Literal["merge-clusters"] = "merge-clusters"
    clustering: Name = Field(description="Name of the clustering.")
    clusters: list[str] = Field(min_length=2, description="Clusters to merge, by number or name.")


KIND = Kind(
    spec=MergeClusters,
    title="Merge clusters of",
    creates=nothing,
    requires=lambda spec: named("clustering", spec.clustering),
    reads=no_path,
    command="cluster merge CLUSTERING",
    link=clusters_link("See the clusters", "Words & documents"),
    runner="jobs.kinds.clusters.edits:merge",
)
