"""Balanced assignment: each document to one cluster, with sizes that differ by at most one, at least cost: C-BTM Eq. 1.

The linear program has N·K arcs, but only K dual prices: documents go where cost plus price is least. The prices that
balance the clusters maximise a concave function. It is smoothed at a falling temperature and maximised by Newton
steps, each one pass over the costs and one K×K system. The few remaining surplus documents move along cheapest paths
between clusters until all sizes are right. An assignment that is optimal for its sizes stays optimal after a move
along a cheapest path, so the result is the optimum, to the precision of the costs.

Shapes: N documents, K clusters.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

CHUNK = 1 << 14  # rows smoothed at a time: their weights stay in the processor's cache
COOLING = (4, 16, 64, 256)  # temperatures: the spread of the costs divided by these
MAX_STEPS = 10  # Newton steps at one temperature; it takes two to four
SAMPLE = 2000  # documents whose costs set the first temperature
NEAR_ENOUGH = 0.1  # of a cluster's size, summed over all: the rest is moved exactly

FAINTEST = (
    -30.0
)  # log-weight compared with the largest: smaller ones change nothing, but their products are denormal, and slow

Labels = NDArray[np.int32]
Floats = NDArray[Any]


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


def even_out(costs_NK: Floats, labels_N: Labels) -> Labels:
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

    def __init__(self, costs_NK: Floats, labels_N: Labels) -> None:
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
