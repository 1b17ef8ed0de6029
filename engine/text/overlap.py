"""Bigram overlap of two domains, and its correlation with how well experts transfer: DEMix §4.4, figure 2.

The paper correlates an expert's affinity to a domain with the bigram overlap between the two domains (r = 0.40,
t = 3.45, p = 0.001), and defines neither. Our reading, after the vocabulary overlap of Gururangan et al. (2020):
a bigram is two consecutive words of one document, split at white space, in lower case; the overlap is the share of
the most frequent bigrams that two domains have in common. Affinity is the negated perplexity ratio of figure 2, so
that a positive correlation means more affinity to domains of more overlap.

Shapes: E experts (by their own domains), D domains.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from engine.errors import EngineError
from engine.text.split import read_split

NUM_BIGRAMS = 100_000  # the most frequent ones are compared
SAMPLE_BYTES = 8 << 20  # of text, which holds at most some million bigrams
MIN_CELLS = 3  # fewer points always lie on a line

Bigrams = frozenset[str]  # “of the”: joined words take half the memory of pairs


@dataclass(frozen=True, slots=True)
class OverlapCorrelation:
    """Pearson's r over the cells of two matrices, its t statistic and its two-sided p value."""

    r: float
    t: float
    p: float
    num_cells: int


def domain_bigrams(folder: Path) -> Bigrams:
    """The most frequent bigrams of a domain's training text.

    Documents lie in the order of their hashes, so the first ones are a fair sample, the same each time.
    Overlaps are comparable between domains that fill the sample; a small domain has fewer bigrams to share.
    """
    return frequent_bigrams(row["text"] for row in read_split(folder, "train"))


def frequent_bigrams(
    texts: Iterable[str], *, num_bigrams: int = NUM_BIGRAMS, sample_bytes: int = SAMPLE_BYTES
) -> Bigrams:
    """The most frequent bigrams of the first `sample_bytes` of text; ties are broken alphabetically."""
    counts: Counter[str] = Counter()
    for text in _sample(texts, sample_bytes):
        counts.update(map(" ".join, pairwise(text.lower().split())))
    return frozenset(heapq.nsmallest(num_bigrams, counts, key=lambda bigram: (-counts[bigram], bigram)))


def overlap(first: Bigrams, second: Bigrams) -> float:
    """The share of the smaller set's bigrams that the other set also has, from 0 to 1."""
    fewer = min(len(first), len(second))
    return len(first & second) / fewer if fewer else 0.0


def overlap_matrix(experts: Sequence[Bigrams], domains: Sequence[Bigrams]) -> NDArray[np.float64]:
    """overlap_ED: of each expert's own domain with each domain; symmetric when both are the same."""
    return np.array([[overlap(own, target) for target in domains] for own in experts], dtype=np.float64)


def correlation(
    ratio_ED: ArrayLike, overlap_ED: ArrayLike, *, own_columns: Sequence[int] | None = None, with_own: bool = False
) -> OverlapCorrelation:
    """The correlation of an expert's affinity to a domain with the overlap, over all cells measured in both.

    ratio_ED: an expert's perplexity over that of the domain's own expert (None or NaN: not measured).
    own_columns: the column of each expert's own domain (default: i for expert i). There ratio and overlap are 1 by
    definition, so those cells are left out, unless `with_own`: the paper's t fits its r only with all 64 cells of
    its 8 by 8 figure.
    """
    ratios, overlaps = np.asarray(ratio_ED, dtype=np.float64), np.asarray(overlap_ED, dtype=np.float64)
    if ratios.ndim != 2 or ratios.shape != overlaps.shape:
        problem = f"Ratios and overlaps must be matrices of one shape, got {ratios.shape} and {overlaps.shape}."
        raise EngineError(problem, "Give both for the same experts and domains.")
    chosen = np.isfinite(ratios) & np.isfinite(overlaps)
    if not with_own:
        columns = np.arange(len(ratios)) if own_columns is None else np.asarray(own_columns, dtype=np.int64)
        chosen &= columns[:, None] != np.arange(ratios.shape[1])
    affinities, shares = -ratios[chosen], overlaps[chosen]
    num_cells = len(affinities)
    if num_cells < MIN_CELLS or np.ptp(affinities) == 0 or np.ptp(shares) == 0:
        problem = f"A correlation needs at least {MIN_CELLS} different cells; there are {num_cells}"
        raise EngineError(f"{problem}, or all are equal.", "Score more experts on more domains.")
    result = scipy.stats.pearsonr(affinities, shares)
    r = float(result.statistic)
    return OverlapCorrelation(r, student_t(r, num_cells), float(result.pvalue), num_cells)


def student_t(r: float, num_cells: int) -> float:
    """The t statistic of a correlation: r √((n − 2) / (1 − r²)); infinite when all cells lie on a line."""
    rest = 1 - r * r
    return float(r * np.sqrt((num_cells - 2) / rest)) if rest > 0 else float(np.copysign(np.inf, r))


def _sample(texts: Iterable[str], num_bytes: int) -> Iterator[str]:
    """The first `num_bytes` of the texts; the last text is cut, as one may be longer than the sample."""
    left = num_bytes
    for text in texts:
        data = text.encode()
        yield data[:left].decode(errors="ignore")
        left -= len(data)
        if left <= 0:
            return
