"""Averages of systems over domains and seeds, and tables of counts, under draws of the same documents.

How documents are drawn, and what an interval holds, is in `engine/statistics/estimates.py`.
Shapes: N blocks, R draws, S seeds, U ways in which the pieces of a document lie in a table, C cells.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from engine.statistics.estimates import (
    LEVEL,
    NUM_DRAWS,
    Draws,
    Estimate,
    Floats,
    Ints,
    MeasuredText,
    Variance,
    text_freedom,
)

Place = tuple[Hashable, int, str]  # system, seed, domain
Statistic = Callable[..., Floats]
Row = dict[str, Any]
Number = Callable[[Hashable, str], Any]  # of a system on a domain's text


def interval_columns(estimate: Estimate | None, name: str = "ours", before: str = "") -> Row:
    """A number with its interval as three columns, empty ones without it; `before` begins the interval's names."""
    numbers = (estimate.value, estimate.low, estimate.high) if estimate else (None, None, None)
    return dict(zip((name, f"{before}low", f"{before}high"), numbers, strict=True))


class Hits(MeasuredText):
    """Tokens that the system found the most probable ones; their number is the accuracy."""


class SystemChange(NamedTuple):
    """The change from one system to another on one domain."""

    after: Hashable
    before: Hashable
    domain: str


class Averages:
    """What was measured of systems, by (system, seed, domain): its averages under the same draws of text."""

    def __init__(self, measured: Mapping[Place, MeasuredText], num_draws: int = NUM_DRAWS) -> None:
        self.draws = Draws(num_draws)
        self.measured = measured
        self._numbers: dict[tuple[Hashable, int, str, bool], Any] = {}

    def half(self, which: int) -> Self:
        """The same of one half (0 or 1) of every text: what is chosen on one half may be judged on the other."""
        halves = {key: half for key, one in self.measured.items() if (half := one.half(which)) is not None}
        return type(self)(halves, self.draws.num_draws)

    @cached_property
    def seeds(self) -> list[int]:
        """Every seed that anything was measured in."""
        return sorted({seed for _, seed, _ in self.measured})

    def seeds_with(self, systems: Sequence[Hashable], domains: Sequence[str]) -> list[int]:
        """The seeds in which every one of these systems was scored on every one of these domains."""
        return [s for s in self.seeds if all((m, s, d) in self.measured for m in systems for d in domains)]

    def estimate(self, systems: Sequence[Hashable], domains: Sequence[str], statistic: Statistic) -> Estimate | None:
        """A statistic of the systems' averages over domains, averaged over seeds; None where no seed has them all.

        `statistic` is given one array for each system, one number for each draw.
        """

        def averaged(number: Number) -> Any:
            return statistic(*(sum(number(system, domain) for domain in domains) / len(domains) for system in systems))

        return self._estimate(list(product(systems, domains)), averaged)

    def changes(self, changes: Sequence[SystemChange]) -> Estimate | None:
        """The mean change of perplexity, in %, as in table 13.

        Each change counts the same, however large its perplexity. None where no seed has all of them.
        """

        def averaged(number: Number) -> Any:
            ratios = [number(after, domain) / number(before, domain) for after, before, domain in changes]
            return 100 * (sum(ratios) / len(ratios) - 1)

        return self._estimate([(system, one.domain) for one in changes for system in one[:2]], averaged)

    def _estimate(self, pairs: Sequence[tuple[Hashable, str]], averaged: Callable[[Number], Floats]) -> Estimate | None:
        """What is averaged from the numbers of pairs of system and domain, in the seeds that have all of them."""
        seeds = [
            seed for seed in self.seeds if all((system, seed, domain) in self.measured for system, domain in pairs)
        ]
        if not seeds or not pairs:
            return None

        def by_seed(drawn: Collection[str]) -> list[Floats]:
            """Under every draw of these domains; the others stay as they are."""
            return [averaged(partial(self._number, seed, drawn)) for seed in seeds]

        systems = {domain: system for system, domain in pairs}  # a system of each domain: all read the same documents
        parts = []
        for domain, system in systems.items():
            documents = [self.measured[system, seed, domain].documents_N for seed in seeds]
            variance = float(np.var(np.mean(by_seed([domain]), axis=0), ddof=1))
            parts.append(Variance(variance, text_freedom(documents)))
        return self.draws.estimate([float(point) for point in by_seed(())], by_seed(systems), parts)

    def value(self, system: Hashable, domains: Sequence[str]) -> float | None:
        """A system's number, averaged over domains and the seeds that have them, without an interval."""
        seeds = self.seeds_with([system], domains)
        values = [[self._number(seed, (), system, domain) for domain in domains] for seed in seeds]
        return float(np.mean(values)) if seeds and domains else None

    def average(self, system: Hashable, domains: Sequence[str]) -> Estimate | None:
        """A system's number, averaged over domains and seeds."""
        return self.estimate([system], domains, lambda own: own)

    def difference(self, system: Hashable, other: Hashable, domains: Sequence[str]) -> Estimate | None:
        """The difference between two systems; negative where the first has less."""
        return self.estimate([system, other], domains, lambda one, two: one - two)

    def _number(self, seed: int, drawn: Collection[str], system: Hashable, domain: str) -> Any:
        """A system's number on a domain's text; under every draw of it [R], if it is drawn."""
        key = (system, seed, domain, domain in drawn)
        if key not in self._numbers:
            one = self.measured[key[:3]]
            if domain in drawn:
                totals_R, tokens_R = self.draws.sums(domain, one.documents_N, one.totals_N, one.tokens_N)
                self._numbers[key] = one.number(totals_R / tokens_R)
            else:
                self._numbers[key] = one.value
        return self._numbers[key]


def estimate_mean(draws: Draws, text: str, measured: Sequence[tuple[Floats, Ints]]) -> Estimate:
    """The mean over blocks of what was measured in each block of a text; values and documents [N] of every seed."""
    drawn = [draws.sums(text, of_N, values_N, np.ones(len(of_N))) for values_N, of_N in measured]
    points = [float(values_N.mean()) for values_N, _ in measured]
    means_SR = [total_R / num_R for total_R, num_R in drawn]
    return draws.estimate(points, means_SR, [Variance(1.0, text_freedom([of_N for _, of_N in measured]))])


@dataclass(frozen=True)
class Counted:
    """Texts counted in the cells of a table, by the flat number of the cell, and which document each is a piece of."""

    cells_N: Ints
    documents_N: Ints
    shape: tuple[int, ...]

    @property
    def table(self) -> Floats:
        """The number of texts in each cell."""
        return np.bincount(self.cells_N, minlength=math.prod(self.shape)).reshape(self.shape).astype(float)


def estimate_counts(draws: Draws, counted_S: Sequence[Counted], statistic: Statistic) -> Estimate:
    """A statistic of what was counted, one table for each seed, under draws of documents with all their pieces.

    A number in `documents_N` means the same document in every seed, and the tables are of one shape.
    `statistic` is given tables with the draws in front, and gives one number for each.
    """
    points = [float(statistic(one.table[None])[0]) for one in counted_S]
    freedom = text_freedom([one.documents_N for one in counted_S])
    drawn_SR = [statistic(drawn) for drawn in _draw_tables(counted_S, draws.num_draws)]
    return draws.estimate(points, drawn_SR, [Variance(1.0, freedom)])


def _draw_tables(counted_S: Sequence[Counted], num_draws: int) -> Iterator[Floats]:
    """Tables [R, …] of each seed, of the same documents: of G, G − 1 are drawn, each counted G / (G − 1) times."""
    kinds_SUC, num_U = _kinds(counted_S)
    total = int(num_U.sum())
    drawn = max(1, total - 1)
    chance = np.random.default_rng([0, *kinds_SUC.shape])
    counts_RU = chance.multinomial(drawn, num_U / total, num_draws) * (total / drawn)
    for kinds_UC, counted in zip(kinds_SUC, counted_S, strict=True):
        yield (counts_RU @ kinds_UC).reshape(num_draws, *counted.shape)


def _kinds(counted_S: Sequence[Counted]) -> tuple[Floats, Ints]:
    """Each way [S, U, cells] in which the pieces of a document lie in the tables, and how many documents lie so [U]."""
    num_cells = math.prod(counted_S[0].shape)
    cells_M = np.concatenate([one.cells_N + seed * num_cells for seed, one in enumerate(counted_S)])
    documents_M = np.concatenate([one.documents_N for one in counted_S])
    order = np.lexsort((cells_M, documents_M))
    borders = np.flatnonzero(np.diff(documents_M[order])) + 1
    kinds = Counter(tuple(cells.tolist()) for cells in np.split(cells_M[order], borders))
    rows = [np.bincount(cells, minlength=len(counted_S) * num_cells) for cells in kinds]
    kinds_USC = np.array(rows, dtype=np.float64).reshape(-1, len(counted_S), num_cells)
    return kinds_USC.transpose(1, 0, 2), np.array(list(kinds.values()))


SHARE, CORRELATION = (0.0, 1.0), (-1.0, 1.0)  # bounds of what they measure
_95 = 1.959964  # standard deviations
_MOST_R = 0.999999  # Fisher's transform of 1 is infinite


def middle(draws_R: Floats) -> tuple[float, float]:
    """The bounds of the middle 95 % of draws."""
    tail = 50 * (1 - LEVEL)
    low, high = np.percentile(draws_R, [tail, 100 - tail])
    return float(low), float(high)


def share(holds_SD: Sequence[Sequence[bool]]) -> Estimate:
    """For which share of domains something holds, on average over seeds, with Wilson's interval (1927) at least.

    Seeds read the same text, so they do not count as more domains.
    """
    each_S = np.mean(np.asarray(holds_SD, dtype=np.float64), axis=1)
    p, num = float(each_S.mean()), len(holds_SD[0])
    centre, reach = p + _95**2 / (2 * num), _95 * math.sqrt(p * (1 - p) / num + _95**2 / (4 * num**2))
    denominator = 1 + _95**2 / num
    low, high = (centre - reach) / denominator, (centre + reach) / denominator
    return Estimate(p, low, high, tuple(each_S.tolist())).over_seeds(SHARE)


def correlation_of_points(values_SN: Sequence[Sequence[float]], other_N: Sequence[float]) -> Estimate | None:
    """Pearson's r of the mean over seeds, with Fisher's interval; None where nothing varies or points are too few."""
    mean_N = np.mean(values_SN, axis=0)
    num_points = len(mean_N)
    if num_points < 4 or np.ptp(mean_N) == 0 or np.ptp(other_N) == 0:
        return None
    r = _pearson(mean_N, other_N)
    centre, reach = math.atanh(min(max(r, -_MOST_R), _MOST_R)), _95 / math.sqrt(num_points - 3)
    each = tuple(_pearson(values_N, other_N) for values_N in values_SN)
    return Estimate(r, math.tanh(centre - reach), math.tanh(centre + reach), each).over_seeds(CORRELATION)


def correlation_of_pairs(tables_SDD: ArrayLike, other_DD: ArrayLike, *, num_draws: int = NUM_DRAWS) -> Estimate | None:
    """Pearson's r over the pairs of different domains, by the mean of tables over seeds; None where nothing varies.

    Pairs share rows and columns, so they are not as many points. The interval is r less what r comes to where the
    domains of `other_DD` are called by each other's names (Mantel, 1967): it lies above 0 only where fewer than one in
    forty of such orders give as much.
    """
    tables, other = np.asarray(tables_SDD, dtype=np.float64), np.asarray(other_DD, dtype=np.float64)
    away = ~np.eye(len(other), dtype=bool)
    mean_C = tables.mean(0)[away]
    if np.ptp(mean_C) == 0 or np.ptp(other[away]) == 0:
        return None
    chance = np.random.default_rng(0)
    orders_RD = np.stack([chance.permutation(len(other)) for _ in range(num_draws)])
    shuffled_RC = other[orders_RD[:, :, None], orders_RD[:, None, :]][:, away]
    low, high = middle(_centre(shuffled_RC) @ _centre(mean_C))
    r = _pearson(mean_C, other[away])
    by_seed = tuple(_pearson(table[away], other[away]) for table in tables)
    return Estimate(r, max(-1.0, r - high), min(1.0, r - low), by_seed).over_seeds(CORRELATION)


def _pearson(like: ArrayLike, other: ArrayLike) -> float:
    return float(_centre(like) @ _centre(other))


def _centre(values: ArrayLike) -> NDArray[Any]:
    """Less their mean, and of length 1, along the last axis; zeros where they do not vary."""
    array = np.asarray(values, dtype=np.float64)
    around = array - array.mean(-1, keepdims=True)
    length = np.linalg.norm(around, axis=-1, keepdims=True)
    return np.asarray(np.divide(around, length, out=np.zeros_like(around), where=length > 0))
