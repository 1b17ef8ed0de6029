"""The clusterers of the paper: k-means of equal sizes (C-BTM §2.1, Eq. 1) or any (§7.2), and random clusters (§7.1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from engine.clusters.clusterer_type import ClustererType

if TYPE_CHECKING:
    from engine.clusters.centroids import Clusters, Floats
    from engine.clusters.config import ClusterConfig
    from engine.events import Progress


def _find(vectors_ND: Floats, config: ClusterConfig) -> Iterator[Progress | Clusters]:
    """Finds clusters by the method of the config; imports torch only now."""
    from engine.clusters import kmeans

    if config.method == "random":
        return kmeans.random_clusters(vectors_ND, config)
    assign = kmeans.balanced_assignment if config.method == "balanced" else kmeans.nearest_assignment
    return kmeans.kmeans(vectors_ND, config, assign)


CLUSTERER = (
    ClustererType("balanced", "sizes differ by at most one", _find),
    ClustererType("random", "by lot", _find, is_random=True),
    ClustererType("unbalanced", "plain k-means", _find),
)
