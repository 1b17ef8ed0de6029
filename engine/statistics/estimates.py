"""Numbers with their intervals, over seeds and over values.

Shapes: S seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

NUM_DRAWS = 2000
LEVEL = 0.95
Floats = NDArray[np.float64]


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
