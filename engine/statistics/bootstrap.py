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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

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
    num_documents = max(len(np.unique(one)) for one in documents)
    return max(1, (num_documents if num_documents > 1 else max(map(len, documents))) - 1)
