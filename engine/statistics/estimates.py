"""Numbers with their intervals: of draws, of a share, of a correlation over points and over pairs.

Shapes: S seeds, N points, D domains, R draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

NUM_DRAWS = 2000
LEVEL = 0.95
_95 = 1.959964  # standard deviations
_MOST_R = 0.999999  # Fisher's transform of 1 is infinite

Floats = NDArray[np.float64]


SHARE, CORRELATION = (0.0, 1.0), (-1.0, 1.0)  # bounds of what they measure


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
    low, high = middle(_centred(shuffled_RC) @ _centred(mean_C))
    r = _pearson(mean_C, other[away])
    by_seed = tuple(_pearson(one[away], other[away]) for one in tables)
    return Estimate(r, max(-1.0, r - high), min(1.0, r - low), by_seed).over_seeds(CORRELATION)


def _pearson(one: ArrayLike, other: ArrayLike) -> float:
    return float(_centred(one) @ _centred(other))


def _centred(values: ArrayLike) -> NDArray[Any]:
    """Less their mean, and of length 1, along the last axis; zeros where they do not vary."""
    array = np.asarray(values, dtype=np.float64)
    around = array - array.mean(-1, keepdims=True)
    length = np.linalg.norm(around, axis=-1, keepdims=True)
    return np.asarray(np.divide(around, length, out=np.zeros_like(around), where=length > 0))


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
