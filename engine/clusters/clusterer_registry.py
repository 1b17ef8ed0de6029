"""Finds clusters with the clusterer that a config names. Shapes: N documents, K clusters, D dimensions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.clusters.centroids import Clusters
from engine.clusters.clusterer_type import clusterer_type
from engine.clusters.config import ClusterConfig
from engine.errors import EngineError
from engine.events import Progress


def find_clusters(vectors_ND: NDArray[Any], config: ClusterConfig) -> Iterator[Progress | Clusters]:
    """Progress after each round, then one Clusters. Raises EngineError for vectors that cannot be clustered."""
    vectors = np.ascontiguousarray(vectors_ND, dtype=np.float32)
    _require_clusterable(vectors, config.num_clusters)
    yield from clusterer_type(config.method).find(vectors, config)


def _require_clusterable(vectors: NDArray[np.float32], num_clusters: int) -> None:
    if vectors.ndim != 2 or not vectors.shape[1]:
        raise EngineError(
            f"Vectors must be a matrix with one row per document, but have the shape {vectors.shape} instead.",
            "Embed the documents first.",
        )
    if len(vectors) < num_clusters:
        raise EngineError(
            f"Documents must be at least as many as clusters, but are {len(vectors)} for {num_clusters} clusters.",
            "Ask for fewer clusters, or take a larger sample.",
        )
    broken = np.flatnonzero(~np.isfinite(vectors).all(1))
    if len(broken):
        raise EngineError(
            f"Vectors must be finite numbers, but {len(broken)} of {len(vectors)} are not, document {broken[0]} first.",
            "Embed these documents again, or leave them out.",
        )
