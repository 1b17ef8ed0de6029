"""Shares of domains, and correlations over points and over pairs, with their intervals.

Shapes: S seeds, N points, D domains, R draws, C pairs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from engine.statistics.estimates import LEVEL, NUM_DRAWS, Estimate, Floats

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
