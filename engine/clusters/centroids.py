"""The result of every clusterer, and squared distances to cluster centres.

Shapes: N documents, K clusters, D dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Labels = NDArray[np.int32]
_DIRECTIONS = 6  # of a million vectors that differ no two share a cell in all of them
_CELL = 8  # tolerances: few vectors that are equal lie on both sides of a border


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


def positions(vectors_ND: NDArray[Any], rounding: float) -> NDArray[np.int64]:
    """The number of each vector's position [N], from 0; vectors that differ by rounding only share one.

    `rounding` is relative to the typical length of a vector, at least 1. Vectors are compared by their projections on
    P directions: those of one cell are equal, and so are neighbours across a border whose distance is rounding.
    """
    tolerance = rounding * max(1.0, float(np.median(np.sqrt(squared_lengths(vectors_ND)))))
    directions_DP = np.random.default_rng(0).standard_normal((vectors_ND.shape[1], _DIRECTIONS))
    directions_DP /= np.linalg.norm(directions_DP, axis=0)
    projected_NP = vectors_ND @ directions_DP.astype(vectors_ND.dtype)
    cells_NP = np.floor(projected_NP / (_CELL * tolerance)).astype(np.int64)
    _, first_U, cell_N = np.unique(cells_NP, axis=0, return_index=True, return_inverse=True)
    order_PU = np.argsort(projected_NP[first_U], axis=0).T
    first, second = first_U[order_PU[:, :-1]].ravel(), first_U[order_PU[:, 1:]].ravel()
    may_be = (np.abs(projected_NP[first] - projected_NP[second]) <= tolerance).all(1)
    first, second = first[may_be], second[may_be]
    near = squared_lengths(vectors_ND[first] - vectors_ND[second]) <= tolerance**2
    ends = cell_N.reshape(-1)[first[near]], cell_N.reshape(-1)[second[near]]
    links = scipy.sparse.coo_array((near[near], ends), shape=(len(first_U), len(first_U)))
    _, position_U = scipy.sparse.csgraph.connected_components(links, directed=False)
    numbers_N: NDArray[np.int64] = position_U[cell_N.reshape(-1)].astype(np.int64)
    return numbers_N


def is_divided(positions_N: NDArray[np.int64], labels_N: Labels) -> NDArray[np.bool_]:
    """Which documents [N] have the position of a document of another cluster."""
    held = np.unique(np.stack([positions_N, labels_N.astype(np.int64)]), axis=1)
    divided_N: NDArray[np.bool_] = (np.bincount(held[0]) > 1)[positions_N]
    return divided_N
