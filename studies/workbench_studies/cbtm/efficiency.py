"""Operations of dense and expert models (C-BTM §A.2), and costs of a performance between measured ones (§A.3)."""

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

    None outside the measured range: nothing is extrapolated (after Artetxe et al. 2021). Of two costs for one
    performance the lower counts. Raises EngineError for a cost that is not above 0 or a number that is not finite.
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


def _require_numbers(curve: Sequence[MeasuredCost]) -> None:
    for point in curve:
        if not (math.isfinite(point.performance) and math.isfinite(point.cost) and point.cost > 0):
            raise EngineError(
                f"Costs must be above 0 and all numbers finite: performance {point.performance} has cost {point.cost}.",
                "Leave this point out, or measure it again.",
            )


def narayanan_flops(
    num_layers: int, width: int, vocab_size: int, num_tokens: int, context: int, *, recomputed: bool = True
) -> float:
    """Operations of an update on `num_tokens` by the formula as printed; `recomputed=False` keeps the activations."""
    passes = 4 if recomputed else 3
    logits = vocab_size / (4 * passes * num_layers * width)
    return 24 * passes * num_tokens * num_layers * width**2 * (1 + context / (6 * width) + logits)


def elm_flops(num_layers: int, width: int, vocab_size: int, num_tokens: int, context: int, num_clusters: int) -> float:
    """Operations to train one of `num_clusters` expert language models when all together see `num_tokens` (C-BTM §A.2).

    Each sees its share, so that all of them cost what the one dense model costs.
    """
    return narayanan_flops(num_layers, width, vocab_size, num_tokens, context) / num_clusters
