"""The clusterers of the paper: k-means of equal sizes (C-BTM §2.1, Eq. 1) or any (§7.2), and random clusters (§7.1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from engine.clusters.clusterer_type import ClustererType

if TYPE_CHECKING:
    from engine.clusters.centroids import Clusters, Floats
    from engine.clusters.config import ClusterConfig
    from engine.events import Progress


def _balanced(vectors_ND: Floats, config: ClusterConfig) -> Iterator[Progress | Clusters]:
    from engine.clusters.balanced_assignment import balanced_assignment
    from engine.clusters.kmeans import kmeans

    return kmeans(vectors_ND, config, balanced_assignment)


def _random(vectors_ND: Floats, config: ClusterConfig) -> Iterator[Progress | Clusters]:
    from engine.clusters.kmeans import random_clusters

    return random_clusters(vectors_ND, config)


def _unbalanced(vectors_ND: Floats, config: ClusterConfig) -> Iterator[Progress | Clusters]:
    from engine.clusters.kmeans import kmeans, nearest_assignment

    return kmeans(vectors_ND, config, nearest_assignment)


CLUSTERER = (
    ClustererType("balanced", "sizes differ by at most one", _balanced),
    ClustererType("random", "by lot", _random, is_random=True),
    ClustererType("unbalanced", "plain k-means", _unbalanced),
)
