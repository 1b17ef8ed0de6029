"""Split a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from workbench.kinds.clusters.clustering_spec import clusters_link
from workbench.kinds.kind import Kind, named, no_path, nothing
from workbench.specs.base import Name, Spec

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


class SplitCluster(Spec):
    """Find clusters within a cluster; experts trained on it become stale."""

    kind: Literal["split-cluster"] = "split-cluster"
    clustering: Name = Field(description="Name of the clustering.")
    cluster: str = Field(description="Cluster to split, by number or name.")
    num_clusters: int = Field(2, ge=2, le=2**16, title="Number of clusters", description="Number of new clusters.")
    method: Literal["balanced", "unbalanced"] = Field(
        "balanced", description="balanced: sizes differ by at most one; unbalanced: plain k-means."
    )
    sample_size: int = Field(
        100_000, ge=1, description="Training documents to fit clusters on; others are assigned to the nearest."
    )
    seed: int = Field(0, ge=0, le=2**32 - 1, description="Seed of the sample and the first centres.")


def _embeds_with_model(session: Session, spec: Mapping[str, Any]) -> bool:
    """Whether the documents of the clustering that a stored spec names are embedded with a language model."""
    from sqlalchemy import select

    from workbench.schema.tables import Clustering

    statement = select(Clustering.seed_id).where(Clustering.name == spec.get("clustering"))
    return session.scalar(statement) is not None


KIND = Kind(
    spec=SplitCluster,
    title="Split a cluster of",
    creates=nothing,
    requires=lambda spec: named("clustering", spec.clustering),
    reads=no_path,
    uses_gpu=_embeds_with_model,
    command="cluster split CLUSTERING CLUSTER",
    link=clusters_link("See the clusters", "Words & documents"),
    runner="jobs.kinds.clusters.edits:split",
)
