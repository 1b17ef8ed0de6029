"""k-means without a constraint on sizes (C-BTM §7.2): `engine.clusters.kmeans`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from engine.clusters.clusterer_type import ClustererType

if TYPE_CHECKING:
    from engine.clusters.centroids import Clusters, Floats
    from engine.clusters.config import ClusterConfig
    from engine.events import Progress


def _find(vectors_ND: Floats, config: ClusterConfig) -> Iterator[Progress | Clusters]:
    from engine.clusters.kmeans import kmeans, nearest_assignment

    return kmeans(vectors_ND, config, nearest_assignment)


CLUSTERER = ClustererType("unbalanced", "plain k-means", _find)
