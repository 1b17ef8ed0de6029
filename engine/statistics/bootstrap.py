"""Intervals of averaged perplexities and accuracies: documents by a paired bootstrap, seeds by their variance.

A draw takes test documents with replacement, within each domain and the same for every system and seed, since they read
the same text. A block belongs to the document in which it begins: blocks of one document resemble each other and are
drawn together, and so are the pieces of a document that was cut. Of each draw a perplexity or an accuracy is computed
per domain, averaged over domains as the paper averages, then over seeds: the variance over draws is what text leaves
open. To it is added the variance between seeds, estimated without bias (n - 1), over their number. The interval is
Student's, with degrees of freedom by Satterthwaite: of each domain's documents less one, and of the seeds less one. It
is never narrower than Student's over only the seeds.
How a seed's value depends on the documents drawn is in both parts, so the interval is a little too wide.

Of G documents G − 1 are drawn: with G, the interval of a mean is too narrow by √(1 − 1/G) (Rao and Wu, 1988). A text of
a single document is drawn by its blocks, which says nothing of other documents: whoever shows it must say so. A single
seed says nothing of how seeds differ: its interval is only of text, and whoever shows it must also say so.
Shapes: N blocks, G documents, R draws, S seeds.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from engine.statistics.estimates import NUM_DRAWS, Estimate, Floats, Variance, half_width, of_seeds
from engine.statistics.perplexity import MOST_NATS

Ints = NDArray[np.integer]


@dataclass(frozen=True)
class MeasuredText:
    """What was measured of a system on a text, by block: its total, its tokens, and which document it begins in."""

    totals_N: Floats
    tokens_N: Floats
    documents_N: Ints

    @classmethod
    def of(cls, values_X: NDArray[Any], block_size: int, documents_N: Ints) -> Self:
        """From what was measured of every token; the last block may be shorter."""
        starts = np.arange(0, len(values_X), block_size)
        tokens_N = np.diff(starts, append=len(values_X)) * 1.0
        return cls(np.add.reduceat(values_X.astype(float), starts), tokens_N, documents_N)

    @staticmethod
    def number(mean_per_token: Floats) -> Floats:
        """What is reported, from the mean over tokens."""
        return mean_per_token

    @property
    def value(self) -> float:
        return float(self.number(self.totals_N.sum() / self.tokens_N.sum()))

    def half(self, which: int) -> Self | None:
        """Every second document, of a single one every second block; None where that is nothing."""
        _, of_N = np.unique(self.documents_N, return_inverse=True)
        is_in_N = (of_N if of_N.any() else np.arange(len(of_N))) % 2 == which
        selected = type(self)(self.totals_N[is_in_N], self.tokens_N[is_in_N], self.documents_N[is_in_N])
        return selected if is_in_N.any() else None


class Loss(MeasuredText):
    """Negative log-likelihoods in nats; their number is the perplexity."""

    @classmethod
    def of(cls, logprobs_X: NDArray[Any], block_size: int, documents_N: Ints) -> Self:
        """From the log-likelihood of every token; the last block may be shorter."""
        return super().of(-logprobs_X, block_size, documents_N)

    @staticmethod
    def number(nats_per_token: Floats) -> Floats:
        """The perplexity."""
        return np.asarray(np.exp(np.minimum(nats_per_token, MOST_NATS)))


class Hits(MeasuredText):
    """Tokens that the system found the most probable ones; their number is the accuracy."""


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


class SystemChange(NamedTuple):
    """The change from one system to another on one domain."""

    after: Hashable
    before: Hashable
    domain: str


Place = tuple[Hashable, int, str]  # system, seed, domain
Statistic = Callable[..., Floats]


class Draws:
    """Draws of documents and of seeds, each made once: whatever is compared is compared under the same ones."""

    def __init__(self, num_draws: int = NUM_DRAWS) -> None:
        self.num_draws = num_draws
        self._counts: dict[tuple[str, int], Floats] = {}

    def sums(self, text: str, documents_N: Ints, *values_N: Floats) -> tuple[Floats, ...]:
        """The sums [R] of values of a text's blocks over the documents of every draw."""
        names, of_N = np.unique(documents_N, return_inverse=True)
        if len(names) < 2:
            of_N = np.arange(len(documents_N))
        counts_RG = self._documents(text, int(of_N.max()) + 1)
        return tuple(counts_RG @ np.bincount(of_N, one) for one in values_N)

    def estimate(
        self, points_S: Sequence[float], draws_SR: Sequence[Floats], parts: Sequence[Variance] = ()
    ) -> Estimate:
        """The mean over seeds, from its value in each seed and that under every draw of text.

        `parts` tell how the variance over draws divides among texts, and the documents behind each less one; without
        them its degrees of freedom are taken as many.
        """
        of_text = float(np.var(np.mean(draws_SR, axis=0), ddof=1))
        known = sum(part.value for part in parts)
        scaled = [Variance(of_text * part.value / known, part.freedom) for part in parts] if known > 0 else []
        value = float(np.mean(points_S))
        reach = half_width([*(scaled or [Variance(of_text, math.inf)]), *of_seeds(points_S)])
        return Estimate(value, value - reach, value + reach, tuple(points_S)).over_seeds()

    def mean(self, text: str, measured: Sequence[tuple[Floats, Ints]]) -> Estimate:
        """The mean over blocks of what was measured in each block of a text; values and documents [N] of every seed."""
        drawn = [self.sums(text, of_N, values_N, np.ones(len(of_N))) for values_N, of_N in measured]
        points = [float(values_N.mean()) for values_N, _ in measured]
        means_SR = [total_R / num_R for total_R, num_R in drawn]
        return self.estimate(points, means_SR, [Variance(1.0, text_freedom([of_N for _, of_N in measured]))])

    def of_counts(self, counted_S: Sequence[Counted], statistic: Statistic) -> Estimate:
        """A statistic of what was counted, one table for each seed, under draws of documents with all their pieces.

        A number in `documents_N` means the same document in every seed, and the tables are of one shape.
        `statistic` is given tables with the draws in front, and gives one number for each.
        """
        points = [float(statistic(one.table[None])[0]) for one in counted_S]
        freedom = text_freedom([one.documents_N for one in counted_S])
        drawn_SR = [statistic(drawn) for drawn in self._tables(counted_S)]
        return self.estimate(points, drawn_SR, [Variance(1.0, freedom)])

    def _tables(self, counted_S: Sequence[Counted]) -> Iterator[Floats]:
        """Tables [R, …] of each seed, of the same documents: of G, G − 1 are drawn, each counted G / (G − 1) times."""
        kinds_SUC, num_U = _kinds(counted_S)
        total = int(num_U.sum())
        drawn = max(1, total - 1)
        chance = np.random.default_rng([0, *kinds_SUC.shape])
        counts_RU = chance.multinomial(drawn, num_U / total, self.num_draws) * (total / drawn)
        for kinds_UC, counted in zip(kinds_SUC, counted_S, strict=True):
            yield (counts_RU @ kinds_UC).reshape(self.num_draws, *counted.shape)

    def _documents(self, text: str, num_documents: int) -> Floats:
        """How many times each document of a text is drawn [R, G]."""
        key = (text, num_documents)
        if key not in self._counts:
            chance = np.random.default_rng([0, zlib.crc32(text.encode()), num_documents])
            shares = np.full(num_documents, 1 / num_documents)
            self._counts[key] = chance.multinomial(max(1, num_documents - 1), shares, self.num_draws).astype(float)
        return self._counts[key]


class Averages:
    """What was measured of systems, by (system, seed, domain): its averages under the same draws of text."""

    def __init__(self, measured: Mapping[Place, MeasuredText], num_draws: int = NUM_DRAWS) -> None:
        self.draws = Draws(num_draws)
        self.measured = measured
        self._drawn: dict[Place, Floats] = {}
        self._points: dict[Place, float] = {}

    def half(self, which: int) -> Self:
        """The same of one half (0 or 1) of every text: what is chosen on one half may be judged on the other."""
        halves = {place: half for place, one in self.measured.items() if (half := one.half(which)) is not None}
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
        seeds = self.seeds_with(systems, domains)
        if not seeds or not domains:
            return None
        points = [float(statistic(*(np.array(self._mean(m, s, domains)) for m in systems))) for s in seeds]
        drawn_SR = [statistic(*(self._mean_drawn(m, s, domains, domains) for m in systems)) for s in seeds]
        parts = [self._part(systems, seeds, domains, one, statistic) for one in domains]
        return self.draws.estimate(points, drawn_SR, parts)

    def _part(
        self,
        systems: Sequence[Hashable],
        seeds: Sequence[int],
        domains: Sequence[str],
        drawn: str,
        statistic: Statistic,
    ) -> Variance:
        """The variance that one domain's text leaves in a statistic averaged over seeds."""
        drawn_SR = [statistic(*(self._mean_drawn(m, s, domains, [drawn]) for m in systems)) for s in seeds]
        variance = float(np.var(np.mean(drawn_SR, axis=0), ddof=1))
        return Variance(variance, text_freedom([self.measured[systems[0], s, drawn].documents_N for s in seeds]))

    def value(self, system: Hashable, domains: Sequence[str]) -> float | None:
        """A system's number, averaged over domains and the seeds that have them, without an interval."""
        seeds = self.seeds_with([system], domains)
        return float(np.mean([self._mean(system, seed, domains) for seed in seeds])) if seeds and domains else None

    def average(self, system: Hashable, domains: Sequence[str]) -> Estimate | None:
        """A system's number, averaged over domains and seeds."""
        return self.estimate([system], domains, lambda own: own)

    def difference(self, system: Hashable, other: Hashable, domains: Sequence[str]) -> Estimate | None:
        """The difference between two systems; negative where the first has less."""
        return self.estimate([system, other], domains, lambda one, two: one - two)

    def _mean(self, system: Hashable, seed: int, domains: Sequence[str]) -> float:
        return float(np.mean([self._point(system, seed, domain) for domain in domains]))

    def _mean_drawn(self, system: Hashable, seed: int, domains: Sequence[str], drawn: Sequence[str]) -> Floats:
        """The average over domains under every draw of those in `drawn`; the others stay as they are."""
        moved_R = np.zeros(self.draws.num_draws)
        for domain in drawn:
            moved_R += self._drawn_at(system, seed, domain) - self._point(system, seed, domain)
        return self._mean(system, seed, domains) + moved_R / len(domains)

    def _point(self, system: Hashable, seed: int, domain: str) -> float:
        place = (system, seed, domain)
        if place not in self._points:
            self._points[place] = self.measured[place].value
        return self._points[place]

    def _drawn_at(self, system: Hashable, seed: int, domain: str) -> Floats:
        """The number under every draw of the domain's text [R]."""
        place = (system, seed, domain)
        if place not in self._drawn:
            one = self.measured[place]
            totals_R, tokens_R = self.draws.sums(domain, one.documents_N, one.totals_N, one.tokens_N)
            self._drawn[place] = one.number(totals_R / tokens_R)
        return self._drawn[place]


class Resampled(Averages):
    """Losses of systems by (system, seed, domain), and what they give under the same draws of text: perplexities."""

    def changes(self, changes: Sequence[SystemChange]) -> Estimate | None:
        """The mean change of perplexity, in %, as in table 13.

        Each change counts the same, however large its perplexity. None where no seed has all of them.
        """
        seeds = [s for s in self.seeds if all((m, s, one.domain) in self.measured for one in changes for m in one[:2])]
        if not seeds or not changes:
            return None
        points = [float(np.mean([self._point_change(one, s) for one in changes])) for s in seeds]
        by_domain = {one.domain: [other for other in changes if other.domain == one.domain] for one in changes}
        parts_D = [
            np.mean([np.sum([self._drawn_change(one, s) for one in same], axis=0) for s in seeds], axis=0)
            for same in by_domain.values()
        ]
        texts = [
            [self.measured[same[0].after, s, domain].documents_N for s in seeds] for domain, same in by_domain.items()
        ]
        parts = [
            Variance(float(np.var(one, ddof=1)), text_freedom(each)) for one, each in zip(parts_D, texts, strict=True)
        ]
        drawn_SR = [np.mean([self._drawn_change(one, s) for one in changes], axis=0) for s in seeds]
        return self.draws.estimate(points, drawn_SR, parts)

    def _point_change(self, change: SystemChange, seed: int) -> float:
        after, before = (self.measured[m, seed, change.domain].value for m in change[:2])
        return 100 * (after / before - 1)

    def _drawn_change(self, change: SystemChange, seed: int) -> Floats:
        after_R, before_R = (self._drawn_at(m, seed, change.domain) for m in change[:2])
        return 100 * (after_R / before_R - 1)


def text_freedom(documents: Sequence[Ints]) -> int:
    """The documents of a text less one; of a single document its blocks less one."""
    num_documents = max(len(np.unique(one)) for one in documents)
    return max(1, (num_documents if num_documents > 1 else max(map(len, documents))) - 1)


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
