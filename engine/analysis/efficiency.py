"""Interpolates the cost of a performance between measured ones (C-BTM §A.3, after Artetxe et al. 2021)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from engine.errors import EngineError


@dataclass(frozen=True, slots=True)
class MeasuredCost:
    """A performance (such as a perplexity) and what reaching it cost (such as operations, or seconds)."""

    performance: float
    cost: float


def cost_of(performance: float, curve: Sequence[MeasuredCost]) -> float | None:
    """The cost of a performance, log-interpolated between the nearest measured performances.

    None outside the measured range: nothing is extrapolated. Of two costs for one performance the lower counts.
    Raises EngineError for a cost that is not above 0 or a number that is not finite.
    """
    _require_numbers(curve)
    below = [point for point in curve if point.performance <= performance]
    above = [point for point in curve if point.performance >= performance]
    if not below or not above:
        return None
    low = min(below, key=lambda point: (performance - point.performance, point.cost))
    high = min(above, key=lambda point: (point.performance - performance, point.cost))
    if low.performance == high.performance:
        return low.cost
    share = (performance - low.performance) / (high.performance - low.performance)
    return math.exp(math.log(low.cost) + share * (math.log(high.cost) - math.log(low.cost)))


def speedup(performance: float, dense: Sequence[MeasuredCost], other: Sequence[MeasuredCost]) -> float | None:
    """The dense model's cost for a performance over the other's; None when either was not measured."""
    dense_cost, other_cost = cost_of(performance, dense), cost_of(performance, other)
    return None if dense_cost is None or other_cost is None else dense_cost / other_cost


def split_steps(num_steps: int, num_clusters: int) -> list[int]:
    """Splits the dense model's updates over the experts, so that both see equally many tokens (§A.2).

    The remainder goes to the first experts. Raises EngineError when an expert would get no update.
    """
    if num_steps < num_clusters:
        raise EngineError(
            f"{num_steps} steps are too few for {num_clusters} clusters: each needs at least one.",
            "Set more steps: they are divided over all clusters.",
        )
    each, rest = divmod(num_steps, num_clusters)
    return [each + (number < rest) for number in range(num_clusters)]


def _require_numbers(curve: Sequence[MeasuredCost]) -> None:
    for point in curve:
        if not (math.isfinite(point.performance) and math.isfinite(point.cost) and point.cost > 0):
            raise EngineError(
                f"Costs must be above 0 and all numbers finite: performance {point.performance} has cost {point.cost}.",
                "Leave this point out, or measure it again.",
            )
