"""k-means with clusters of equal size (C-BTM §2.1, Eq. 1): `engine.clusters.kmeans`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from engine.clusters.clusterer_type import ClustererType

if TYPE_CHECKING:
    from engine.clusters.centroids import Clusters, Floats
    from engine.clusters.config import ClusterConfig
    from engine.events import Progress


def _find(vectors_ND: Floats, config: ClusterConfig) -> Iterator[Progress | Clusters]:
    from engine.clusters.balanced_assignment import balanced_assignment
    from engine.clusters.kmeans import kmeans

    return kmeans(vectors_ND, config, balanced_assignment)


CLUSTERER = ClustererType("balanced", "sizes differ by at most one", _find)
