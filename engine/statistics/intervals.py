"""How sure a mean is, from the numbers behind it alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

NUM_RESAMPLES = 2000


@dataclass(frozen=True)
class Interval:
    """A mean, and the bounds it stays within at the given confidence."""

    mean: float
    low: float
    high: float


def bootstrap_mean(values: Sequence[float] | NDArray[np.float64], seed: int = 0, confidence: float = 0.95) -> Interval:
    """The mean of at least two values with its percentile bootstrap interval (Efron, 1979).

    For a paired comparison give the differences of the pairs.
    """
    array = np.asarray(values, dtype=np.float64)
    bounds = scipy.stats.bootstrap(
        (array,),
        np.mean,
        confidence_level=confidence,
        n_resamples=NUM_RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return Interval(float(array.mean()), float(bounds.low), float(bounds.high))


def student_mean(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """The mean of a few values, such as one for each seed, with Student's interval (1908); of one without width."""
    array = np.asarray(values, dtype=np.float64)
    mean = float(array.mean())
    if len(array) < 2:
        return Interval(mean, mean, mean)
    half = float(scipy.stats.t.ppf((1 + confidence) / 2, len(array) - 1) * array.std(ddof=1) / np.sqrt(len(array)))
    return Interval(mean, mean - half, mean + half)
