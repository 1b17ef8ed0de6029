"""The result of every clusterer, and squared distances to cluster centres.

Shapes: N documents, K clusters, D dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Labels = NDArray[np.int32]


@dataclass(frozen=True)
class Clusters:
    """Centres, the cluster of each fitted document, and the cost after each round."""

    method: str
    seed: int
    centres_KD: Floats
    labels_N: Labels
    costs: tuple[float, ...]

    @property
    def num_clusters(self) -> int:
        """Clusters, empty ones included."""
        return len(self.centres_KD)

    @property
    def sizes(self) -> list[int]:
        """Documents in each cluster."""
        sizes: list[int] = np.bincount(self.labels_N, minlength=self.num_clusters).tolist()
        return sizes


def squared_distances(vectors_ND: NDArray[Any], centres_KD: NDArray[Any]) -> NDArray[Any]:
    """Squared Euclidean distances [N, K], in the precision of the vectors."""
    centres = centres_KD.astype(vectors_ND.dtype)
    distances_NK: NDArray[Any] = (
        squared_lengths(vectors_ND)[:, None] - 2 * (vectors_ND @ centres.T) + squared_lengths(centres)
    )
    np.maximum(distances_NK, 0, out=distances_NK)  # rounding
    return distances_NK


def squared_lengths(vectors_ND: NDArray[Any]) -> NDArray[Any]:
    """Squared lengths [N], in the precision of the vectors."""
    lengths_N: NDArray[Any] = np.einsum("nd,nd->n", vectors_ND, vectors_ND)
    return lengths_N
