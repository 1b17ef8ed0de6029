"""k-means: the rounds that all its variants share, such as clusters of equal size (C-BTM §2.1, Eq. 1) or any (§7.2).

The variants start from k-means++ centres and differ only in how documents are assigned. Squared Euclidean distance.

Balanced assignment gives each document to one cluster, with sizes that differ by at most one, at least cost (Eq. 1).
The linear program has N·K arcs, but only K dual prices: documents go where cost plus price is least. The prices that
balance the clusters maximise a concave function. It is smoothed at a falling temperature and maximised by Newton
steps, each one pass over the costs and one K×K system. The few remaining surplus documents move along cheapest paths
between clusters until all sizes are right. An assignment that is optimal for its sizes stays optimal after a move
along a cheapest path, so the result is the optimum, to the precision of the costs.

Shapes: N documents, K clusters, D dimensions.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
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
        yield Progress(number, config.max_iterations, "rounds", note, phase="clusters")
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
    yield Progress(1, 1, "rounds", f"cost {cost:.6g}", phase="clusters")
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


CHUNK = 1 << 14  # rows smoothed at a time: their weights stay in the processor's cache
COOLING = (4, 16, 64, 256)  # temperatures: the spread of the costs divided by these
MAX_STEPS = 10  # Newton steps at one temperature; it takes two to four
SAMPLE = 2000  # documents whose costs set the first temperature
NEAR_ENOUGH = 0.1  # of a cluster's size, summed over all: the rest is moved exactly

FAINTEST = (
    -30.0
)  # log-weight compared with the largest: smaller ones change nothing, but their products are denormal, and slow


def balanced_assignment(costs_NK: Tensor, prices_K: Tensor | None = None) -> tuple[Labels, Tensor]:
    """The cluster of each document, and the prices, which are a good start for slightly changed costs.

    costs_NK: float32 on the CPU, squared distances up to a constant for each document; N must be at least K.
    """
    prices_K = _find_prices(costs_NK, prices_K)
    labels_N = torch.cat([(part.double() + prices_K).argmin(1) for part in costs_NK.split(CHUNK)])
    return even_out(costs_NK.numpy(), labels_N.numpy().astype(np.int32)), prices_K


def _find_prices(costs_NK: Tensor, start_K: Tensor | None) -> Tensor:
    """Prices at which clusters are about equally large, float64 [K]."""
    num_documents, num_clusters = costs_NK.shape
    prices_K = torch.zeros(num_clusters, dtype=torch.float64) if start_K is None else start_K
    spread = _spread(costs_NK)
    if not spread:
        return prices_K  # all clusters coincide, or there is only one
    for divisor in COOLING if start_K is None else COOLING[-1:]:
        prices_K = _climb(costs_NK, prices_K, spread / divisor, num_documents / num_clusters)
    return prices_K


def _spread(costs_NK: Tensor) -> float:
    """The typical extra cost of a median cluster over the cheapest; far clusters must not dominate."""
    sample = costs_NK[:: -(-len(costs_NK) // SAMPLE)].double()
    extra_N = sample.quantile(0.5, dim=1) - sample.amin(1)
    return float(extra_N.median()) or float(extra_N.mean())


@dataclass(frozen=True, slots=True)
class _Smoothed:
    """The smoothed dual at given prices: its value, cluster masses [K] and their joint masses [K, K]."""

    value: float
    mass_K: Tensor
    joint_KK: Tensor

    def ascent(self, size: float, temperature: float) -> Tensor:
        """The Newton step [K] of the prices towards equal masses.

        Regularised: raising all prices equally changes nothing, and far clusters hardly react to their price.
        """
        ridge = size / temperature
        curvature_KK = (torch.diag(self.mass_K) - self.joint_KK) / temperature
        curvature_KK += ridge * (1e-3 * torch.eye(len(self.mass_K)) + 1 / len(self.mass_K))
        step_K: Tensor = torch.linalg.solve(curvature_KK, self.mass_K - size)
        return step_K


def _smooth(costs_NK: Tensor, prices_K: Tensor, temperature: float, size: float) -> _Smoothed:
    num_clusters = len(prices_K)
    value = -size * float(prices_K.sum())
    mass_K = torch.zeros(num_clusters, dtype=torch.float64)
    joint_KK = torch.zeros(num_clusters, num_clusters, dtype=torch.float64)
    for part in costs_NK.split(CHUNK):
        logits = (part + prices_K.float()).div_(-temperature)
        most = logits.amax(1, keepdim=True)
        weights = logits.sub_(most).clamp_(min=FAINTEST).exp_()
        total = weights.sum(1, keepdim=True)
        value -= temperature * float((most + total.log()).sum(dtype=torch.float64))
        weights.div_(total)
        mass_K += weights.sum(0)
        joint_KK += weights.T @ weights
    return _Smoothed(value, mass_K, joint_KK)


def _climb(costs_NK: Tensor, prices_K: Tensor, temperature: float, size: float) -> Tensor:
    """Newton's method with step shortening."""
    current = _smooth(costs_NK, prices_K, temperature, size)
    for _ in range(MAX_STEPS):
        if float((current.mass_K - size).abs().sum()) < NEAR_ENOUGH * size:
            break
        step_K = current.ascent(size, temperature)
        for shortening in (1, 4, 16, 64):
            candidate = _smooth(costs_NK, prices_K + step_K / shortening, temperature, size)
            if candidate.value >= current.value - 1e-7 * abs(current.value):
                break
        else:
            break
        prices_K, current = prices_K + step_K / shortening, candidate
    return prices_K


def even_out(costs_NK: NDArray[Any], labels_N: Labels) -> Labels:
    """Moves documents along cheapest paths between clusters until sizes differ by at most one.

    Exact when `labels_N` is the cheapest assignment with its own sizes, as one by prices is. The remainder goes to the
    clusters where it costs least.
    """
    paths = _Paths(costs_NK, labels_N.copy())
    while (move := _next_move(paths)) is not None:
        paths.move(*move)
    return paths.labels_N


def _next_move(paths: _Paths) -> tuple[list[int], int] | None:
    """A path of clusters and the number of documents to move along it; None at the optimum."""
    sizes_K = paths.sizes_K
    least, most = paths.num_documents // len(sizes_K), -(-paths.num_documents // len(sizes_K))
    if (sizes_K > most).any():
        path, _ = paths.cheapest(sizes_K > most, sizes_K < most)
        return path, min(sizes_K[path[0]] - most, most - sizes_K[path[-1]])
    if (sizes_K < least).any():
        path, _ = paths.cheapest(sizes_K > least, sizes_K < least)
        return path, min(sizes_K[path[0]] - least, least - sizes_K[path[-1]])
    if least == most:
        return None
    path, cost = paths.cheapest(sizes_K == most, sizes_K == least)
    return (path, 1) if cost < -paths.tolerance else None


class _Paths:
    """The least cost of moving one document from a cluster to another, edge_KK, updated as documents move."""

    def __init__(self, costs_NK: NDArray[Any], labels_N: Labels) -> None:
        self.costs_NK, self.labels_N = costs_NK, labels_N
        self.num_documents, num_clusters = costs_NK.shape
        self.sizes_K = np.bincount(labels_N, minlength=num_clusters)
        self.edge_KK = np.full((num_clusters, num_clusters), np.inf)
        self.tolerance = 1e-12 * float(np.abs(costs_NK).max(initial=0))  # rounding of float64
        for cluster in range(num_clusters):
            self._refresh(cluster)

    def _refresh(self, cluster: int) -> None:
        members = np.flatnonzero(self.labels_N == cluster)
        if len(members):
            rows = self.costs_NK[members].astype(np.float64)
            self.edge_KK[cluster] = (rows - rows[:, [cluster]]).min(0)
        else:
            self.edge_KK[cluster] = np.inf
        self.edge_KK[cluster, cluster] = np.inf

    def cheapest(self, sources_K: NDArray[np.bool_], targets_K: NDArray[np.bool_]) -> tuple[list[int], float]:
        """The cheapest path from any source to any target, and its cost (Bellman and Ford)."""
        cost_K = np.where(sources_K, 0.0, np.inf)
        rounds = []
        for _ in range(len(cost_K)):
            through_KK = cost_K[:, None] + self.edge_KK
            best_K = through_KK.argmin(0)
            new_cost_K = through_KK[best_K, np.arange(len(best_K))]
            better_K = new_cost_K < cost_K - self.tolerance
            if not better_K.any():
                break
            cost_K = np.where(better_K, new_cost_K, cost_K)
            rounds.append(np.where(better_K, best_K, -1))
        path = [int(np.where(targets_K, cost_K, np.inf).argmin())]
        for before_K in reversed(rounds):
            if before_K[path[-1]] >= 0:
                path.append(int(before_K[path[-1]]))
        path = _without_cycles(path[::-1])
        return path, sum(float(self.edge_KK[edge]) for edge in pairwise(path))

    def move(self, path: list[int], at_most: int) -> None:
        """Moves documents along a path; documents of equal cost move at once."""
        edges = list(pairwise(path))
        choices = [self._cheapest_documents(source, target, at_most) for source, target in edges]
        number = min(len(chosen) for chosen in choices)
        for chosen, (_, target) in zip(choices, edges, strict=True):
            self.labels_N[chosen[:number]] = target
        self.sizes_K[path[0]] -= number
        self.sizes_K[path[-1]] += number
        for cluster in path:
            self._refresh(cluster)

    def _cheapest_documents(self, source: int, target: int, at_most: int) -> NDArray[np.intp]:
        members = np.flatnonzero(self.labels_N == source)
        extra = self.costs_NK[members, target].astype(np.float64) - self.costs_NK[members, source]
        chosen: NDArray[np.intp] = members[extra <= self.edge_KK[source, target]][:at_most]
        return chosen


def _without_cycles(path: list[int]) -> list[int]:
    """The path without cycles, which only rounding can cause."""
    visited: list[int] = []
    for cluster in path:
        visited = visited[: visited.index(cluster)] if cluster in visited else visited
        visited.append(cluster)
    return visited
