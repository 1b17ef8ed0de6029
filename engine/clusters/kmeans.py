"""k-means: the rounds that all its variants share, such as clusters of equal size (C-BTM §2.1, Eq. 1) or any (§7.2).

The variants start from k-means++ centres and differ only in how documents are assigned. Squared Euclidean distance.
Shapes: N documents, K clusters, D dimensions.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.clusters.centroids import Clusters, Floats, Labels, squared_lengths
from engine.clusters.clusterer_type import clusterer_type
from engine.clusters.config import ClusterConfig
from engine.errors import EngineError
from engine.events import Progress

# Of squared distances [N, K] (up to a constant for each document) and what it returned the round before (None in the
# first): the cluster of each document, and a tensor that helps the next round, if any.
Assignment = Callable[[Tensor, Tensor | None], tuple[Labels, Tensor | None]]


def kmeans(vectors_ND: Floats, config: ClusterConfig, assign: Assignment) -> Iterator[Progress | Clusters]:
    """Yields progress after each round with its cost and seconds, then Clusters; deterministic by seed.

    Each round, `assign` chooses the cluster of every document. The cost of a round is the mean squared distance of
    documents to the mean of their cluster.
    """
    began = time.perf_counter()
    middle_D = vectors_ND.mean(0, dtype=np.float64).astype(np.float32)
    vectors_ND = vectors_ND - middle_D  # distances in float32 are exact only near the origin
    centres_KD = first_centres(vectors_ND, config.num_clusters, config.seed)
    labels_N: Labels | None = None
    hint: Tensor | None = None
    costs: list[float] = []
    for number in range(1, config.max_iterations + 1):
        before_N = labels_N
        labels_N, hint = assign(_relative_distances(vectors_ND, centres_KD), hint)
        centres_KD, cost = _centres(vectors_ND, labels_N, centres_KD)
        costs.append(cost)
        note = f"cost {cost:.6g} after {time.perf_counter() - began:.1f} s"
        yield Progress(number, config.max_iterations, "rounds", note)
        if before_N is not None and np.array_equal(before_N, labels_N):
            break
    assert labels_N is not None
    yield Clusters(config.method, config.seed, centres_KD + middle_D, labels_N, tuple(costs))


def nearest_assignment(costs_NK: Tensor, _: Tensor | None = None) -> tuple[Labels, None]:
    """Each document to its nearest centre."""
    return costs_NK.argmin(1).numpy().astype(np.int32), None


def first_centres(vectors_ND: Floats, num_clusters: int, seed: int) -> Floats:
    """Initial centres by greedy k-means++.

    Each is the best of a few candidates, sampled in proportion to the squared distance to the nearest chosen one.
    """
    generator = np.random.default_rng(seed)
    num_trials = 2 + int(np.log(num_clusters))  # as scikit-learn, after Arthur and Vassilvitskii
    chosen: list[int] = []
    squares_N = squared_lengths(vectors_ND)
    nearest_N = np.full(len(vectors_ND), np.inf, dtype=np.float32)
    tried = generator.integers(len(vectors_ND), size=1)
    while True:
        distances_CN = squares_N - 2 * (vectors_ND[tried] @ vectors_ND.T) + squares_N[tried, None]
        nearest_CN = np.minimum(nearest_N, np.maximum(distances_CN, 0, out=distances_CN), out=distances_CN)
        best = int(nearest_CN.sum(1, dtype=np.float64).argmin())
        chosen.append(int(tried[best]))
        if len(chosen) == num_clusters:
            break
        nearest_N = nearest_CN[best]
        total_N = np.cumsum(nearest_N, dtype=np.float64)
        tried = np.searchsorted(total_N, generator.random(num_trials) * total_N[-1]).clip(max=len(total_N) - 1)
    return vectors_ND[chosen]


def _relative_distances(vectors_ND: Floats, centres_KD: Floats) -> Tensor:
    """Squared distances without the documents' own squared lengths, which do not depend on the cluster."""
    centres = torch.from_numpy(centres_KD)
    squares_K = centres.double().square().sum(1).float()
    return torch.addmm(squares_K, torch.from_numpy(vectors_ND), centres.T, alpha=-2)


def _centres(vectors_ND: Floats, labels_N: Labels, old_KD: Floats) -> tuple[Floats, float]:
    """The mean of each cluster (an empty one keeps its centre), and the cost."""
    sums_KD = np.zeros(old_KD.shape)
    order = np.argsort(labels_N, kind="stable")
    sizes_K = np.bincount(labels_N, minlength=len(old_KD))
    filled = np.flatnonzero(sizes_K)
    starts = (np.cumsum(sizes_K) - sizes_K)[filled]
    sums_KD[filled] = np.add.reduceat(vectors_ND[order], starts, axis=0, dtype=np.float64)
    means_KD = np.where(sizes_K[:, None] > 0, sums_KD / np.maximum(sizes_K, 1)[:, None], old_KD)
    total = np.einsum("nd,nd->", vectors_ND, vectors_ND, dtype=np.float64)
    within = total - float((sizes_K[:, None] * means_KD**2).sum())
    return means_KD.astype(np.float32), max(within, 0.0) / len(vectors_ND)


def random_clusters(vectors_ND: Floats, config: ClusterConfig) -> Iterator[Progress | Clusters]:
    """Yields one Progress, then Clusters whose sizes differ by at most one; deterministic by seed."""
    order = np.random.default_rng(config.seed).permutation(len(vectors_ND))
    labels_N = (order % config.num_clusters).astype(np.int32)
    means_KD = [vectors_ND[labels_N == cluster].mean(0, dtype=np.float64) for cluster in range(config.num_clusters)]
    centres_KD = np.array(means_KD, dtype=np.float32)
    cost = float(np.square(vectors_ND - centres_KD[labels_N]).sum(1, dtype=np.float64).mean())
    yield Progress(1, 1, "rounds", f"cost {cost:.6g}")
    yield Clusters("random", config.seed, centres_KD, labels_N, (cost,))


def drawn_cluster(text: str, num_clusters: int, seed: int) -> int:
    """The random cluster of a new document, by the hash of its text."""
    digest = hashlib.sha256(f"{seed}:".encode() + text.encode()).digest()
    return int.from_bytes(digest[:8]) % num_clusters


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
