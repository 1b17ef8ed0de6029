"""Curves with noise: their recent trend with its standard error, and a smoothed line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

LEVEL = 0.95
FEWEST = 5  # points that a trend is fitted to
_FEWEST_TO_CORRELATE = 10  # residuals; of fewer their correlation is a guess


@dataclass(frozen=True)
class Trend:
    """How much a fitted line changes between the first and the last of its points."""

    change: float
    error: float  # the standard error of `change`
    first: float  # of the points, as their x
    last: float
    is_clear: bool  # noise without a trend would rarely (1 - LEVEL) give so large a change


def recent_trend(x: Sequence[float], y: Sequence[float], *, is_log: bool = False) -> Trend | None:
    """A least-squares line through the last half of the points, at least `FEWEST`; None where there are fewer.

    `is_log` fits against the logarithm of x. Neighbouring residuals that resemble each other hold less than as many
    independent ones: the error grows by sqrt((1 + r) / (1 - r)), r their correlation (Santer et al. 2000).
    """
    if len(x) < FEWEST:
        return None
    num_points = max(FEWEST, -(-len(x) // 2))
    x_N, y_N = np.asarray(x[-num_points:], dtype=float), np.asarray(y[-num_points:], dtype=float)
    places_N = np.log(x_N) if is_log else x_N
    places_N = places_N - places_N.mean()
    squares = float(places_N @ places_N)
    slope = float(places_N @ y_N) / squares
    residuals_N = y_N - y_N.mean() - slope * places_N
    freedom = num_points - 2
    error = math.sqrt(float(residuals_N @ residuals_N) / freedom / squares) * _correlation_factor(residuals_N)
    span = float(places_N[-1] - places_N[0])
    is_clear = abs(slope) > float(stdtrit(freedom, (1 + LEVEL) / 2)) * error
    return Trend(slope * span, error * span, float(x_N[0]), float(x_N[-1]), is_clear)


def _correlation_factor(residuals_N: np.ndarray) -> float:
    total = float(residuals_N @ residuals_N)
    if len(residuals_N) < _FEWEST_TO_CORRELATE or total == 0:
        return 1.0
    correlation = min(max(0.0, float(residuals_N[1:] @ residuals_N[:-1]) / total), 0.99)
    return math.sqrt((1 + correlation) / (1 - correlation))


def smooth(y: Sequence[float], window: int) -> list[float]:
    """At each point the value of a line fitted to the `window` nearest points, by their order (at least 2 of them)."""
    values_N = np.asarray(y, dtype=float)
    window = min(window, len(values_N))
    starts_N = np.clip(np.arange(len(values_N)) - window // 2, 0, len(values_N) - window)
    windows_NW = values_N[starts_N[:, None] + np.arange(window)]
    places_W = np.arange(window) - (window - 1) / 2
    slopes_N = windows_NW @ places_W / float(places_W @ places_W)
    from_middle_N = np.arange(len(values_N)) - starts_N - (window - 1) / 2
    return [float(value) for value in windows_NW.mean(axis=1) + slopes_N * from_middle_N]
