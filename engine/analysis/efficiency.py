"""What a performance costs, between the performances that were measured (C-BTM §A.3, after Artetxe et al. 2021)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from engine.errors import EngineError


@dataclass(frozen=True, slots=True)
class Measured:
    """A performance (such as a perplexity) and what reaching it cost (such as operations, or seconds)."""

    performance: float
    cost: float


def cost_of(performance: float, curve: Sequence[Measured]) -> float | None:
    """What a performance costs, its logarithm interpolated between the nearest measured performances around it.

    None outside of what was measured: nothing is extrapolated. Of two costs for one performance the lower counts.
    Raises EngineError for a cost that is not above 0 or a number that is not finite.
    """
    _require_numbers(curve)
    below = [one for one in curve if one.performance <= performance]
    above = [one for one in curve if one.performance >= performance]
    if not below or not above:
        return None
    low = min(below, key=lambda one: (performance - one.performance, one.cost))
    high = min(above, key=lambda one: (one.performance - performance, one.cost))
    if low.performance == high.performance:
        return low.cost
    share = (performance - low.performance) / (high.performance - low.performance)
    return math.exp(math.log(low.cost) + share * (math.log(high.cost) - math.log(low.cost)))


def speedup(performance: float, dense: Sequence[Measured], other: Sequence[Measured]) -> float | None:
    """How many times the other's cost the dense model needs for a performance; None where either was not measured."""
    dense_cost, other_cost = cost_of(performance, dense), cost_of(performance, other)
    return None if dense_cost is None or other_cost is None else dense_cost / other_cost


def split_steps(num_steps: int, num_clusters: int) -> list[int]:
    """The updates of each expert, together as many as the dense model makes, so that all see as many tokens (§A.2).

    Those that the clusters do not divide go to the first ones, one each. Raises EngineError where some would get none.
    """
    if num_steps < num_clusters:
        raise EngineError(
            f"There must be at least one update for each of {num_clusters} clusters, but there are {num_steps}.",
            "Ask for more steps: they are shared by all clusters.",
        )
    each, rest = divmod(num_steps, num_clusters)
    return [each + (number < rest) for number in range(num_clusters)]


def _require_numbers(curve: Sequence[Measured]) -> None:
    for one in curve:
        if not (math.isfinite(one.performance) and math.isfinite(one.cost) and one.cost > 0):
            raise EngineError(
                f"A measured cost must be above 0 and all numbers finite, but performance {one.performance} has cost "
                f"{one.cost} instead.",
                "Leave this point out, or measure it again.",
            )
