"""Runs the clusterer that a config names. Shapes: N documents, K clusters, D dimensions."""

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
    """Yields progress after each round, then Clusters. Raises EngineError for invalid vectors."""
    vectors = np.ascontiguousarray(vectors_ND, dtype=np.float32)
    _require_clusterable(vectors, config.num_clusters)
    yield from clusterer_type(config.method).find(vectors, config)


def _require_clusterable(vectors: NDArray[np.float32], num_clusters: int) -> None:
    if vectors.ndim != 2 or not vectors.shape[1]:
        raise EngineError(
            f"Vectors must be a matrix with one row per document, got the shape {vectors.shape}.",
            "Embed the documents first.",
        )
    if len(vectors) < num_clusters:
        raise EngineError(
            f"{len(vectors)} documents are too few for {num_clusters} clusters.",
            "Choose fewer clusters, or take a larger sample.",
        )
    broken = np.flatnonzero(~np.isfinite(vectors).all(1))
    if len(broken):
        raise EngineError(
            f"{len(broken)} of {len(vectors)} vectors are not finite (the first is document {broken[0]}).",
            "Embed these documents again, or leave them out.",
        )
