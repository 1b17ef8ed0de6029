"""Clusters drawn at random (C-BTM §7.1): `engine.clusters.kmeans`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from engine.clusters.clusterer_type import ClustererType

if TYPE_CHECKING:
    from engine.clusters.centroids import Clusters, Floats
    from engine.clusters.config import ClusterConfig
    from engine.events import Progress


def _find(vectors_ND: Floats, config: ClusterConfig) -> Iterator[Progress | Clusters]:
    from engine.clusters.kmeans import random_clusters

    return random_clusters(vectors_ND, config)


CLUSTERER = ClustererType("random", "by lot", _find, is_random=True)
