"""Intervals of numbers: documents by a paired bootstrap, seeds by their variance.

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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from engine.statistics.perplexity import MOST_NATS

NUM_DRAWS = 2000
LEVEL = 0.95
Floats = NDArray[np.float64]
Ints = NDArray[np.integer]


@dataclass(frozen=True)
class Estimate:
    """A number with its interval, and its value in each seed."""

    value: float
    low: float
    high: float
    by_seed: tuple[float, ...]

    def over_seeds(self, bounds: tuple[float, float] = (-math.inf, math.inf)) -> Estimate:
        """The same with an interval that is nowhere narrower than Student's over only its seeds, within `bounds`.

        Of a single seed it stays as it is.
        """
        reach = half_width(of_seeds(self.by_seed))
        low, high = max(bounds[0], self.value - reach), min(bounds[1], self.value + reach)
        return Estimate(self.value, min(self.low, low), max(self.high, high), self.by_seed)


class Variance(NamedTuple):
    """A part of a mean's variance, and the degrees of freedom it was estimated with."""

    value: float
    freedom: float


def of_seeds(points_S: Sequence[float] | Floats) -> list[Variance]:
    """The variance of a mean over seeds, without bias (n - 1); nothing of a single seed, which does not show it."""
    num_seeds = len(points_S)
    return [Variance(float(np.var(points_S, ddof=1)) / num_seeds, num_seeds - 1)] if num_seeds > 1 else []


def half_width(parts: Sequence[Variance]) -> float:
    """Half of the t interval of a mean whose variance is the sum of independent parts.

    Degrees of freedom by Satterthwaite (1946): (sum of v)^2 / sum of v^2 / df. They grow when a part that is known well
    is added to one that is not, so that the sum can have a narrower interval than that part (see `over_seeds`).
    """
    total = sum(part.value for part in parts)
    if total <= 0:
        return 0.0
    spread = sum(part.value**2 / part.freedom for part in parts)
    freedom = total**2 / spread if spread else math.inf  # the variance of every part is known
    return float(scipy.stats.t.ppf((1 + LEVEL) / 2, freedom)) * math.sqrt(total)


@dataclass(frozen=True)
class Interval:
    """A mean, and the bounds it stays within at the given confidence."""

    mean: float
    low: float
    high: float


def bootstrap_mean(values: Sequence[float] | NDArray[np.float64]) -> Interval:
    """The mean of at least two values with its percentile bootstrap interval (Efron, 1979).

    For a paired comparison give the differences of the pairs.
    """
    array = np.asarray(values, dtype=np.float64)
    bounds = scipy.stats.bootstrap(
        (array,),
        np.mean,
        confidence_level=LEVEL,
        n_resamples=NUM_DRAWS,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return Interval(float(array.mean()), float(bounds.low), float(bounds.high))


def student_mean(values: Sequence[float]) -> Interval:
    """The mean of a few values, such as one for each seed, with Student's interval (1908); of one without width."""
    array = np.asarray(values, dtype=np.float64)
    mean = float(array.mean())
    if len(array) < 2:
        return Interval(mean, mean, mean)
    half = float(scipy.stats.t.ppf((1 + LEVEL) / 2, len(array) - 1) * array.std(ddof=1) / np.sqrt(len(array)))
    return Interval(mean, mean - half, mean + half)


def perplexity_bounds(losses_X: Floats, counted_X: NDArray[Any], block_size: int) -> tuple[float, float] | None:
    """Student's interval of a perplexity over the blocks of its text; None of fewer than two blocks.

    The mean loss is a ratio of sums over blocks, since blocks differ in the tokens that count (Cochran, 1977, §6.4).
    """
    starts = np.arange(0, len(losses_X), block_size)
    totals_N = np.add.reduceat(losses_X * counted_X, starts)
    tokens_N = np.add.reduceat(counted_X.astype(np.float64), starts)
    num_blocks, num_tokens = len(starts), tokens_N.sum()
    if num_blocks < 2 or not num_tokens:
        return None
    mean = totals_N.sum() / num_tokens
    deviations_N = totals_N - mean * tokens_N
    variance = num_blocks / (num_blocks - 1) * float((deviations_N**2).sum()) / num_tokens**2
    reach = half_width([Variance(float(variance), num_blocks - 1)])
    low, high = Loss.number(np.array([mean - reach, mean + reach])).tolist()
    return low, high


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

    def _documents(self, text: str, num_documents: int) -> Floats:
        """How many times each document of a text is drawn [R, G]."""
        key = (text, num_documents)
        if key not in self._counts:
            chance = np.random.default_rng([0, zlib.crc32(text.encode()), num_documents])
            shares = np.full(num_documents, 1 / num_documents)
            self._counts[key] = chance.multinomial(max(1, num_documents - 1), shares, self.num_draws).astype(float)
        return self._counts[key]


def text_freedom(documents: Sequence[Ints]) -> int:
    """The documents of a text less one; of a single document its blocks less one."""
    num_documents = max(len(np.unique(document)) for document in documents)
    return max(1, (num_documents if num_documents > 1 else max(map(len, documents))) - 1)
