"""Accuracy of each routing, computed from the stored answers of one seed (C-BTM tables 1 and 11).

Shapes: E experts, N examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from torch import Tensor

from engine.analysis.fewshot.routing import Answers, equal, fixed_by_performance, updating_by_performance
from engine.config import TaskRouting
from engine.mixing.papers import PAPER_NEWEST_WEIGHT

ROUTINGS: tuple[TaskRouting, ...] = get_args(TaskRouting)
Nearness = Callable[[int | None], Tensor]  # from top-k to log-weights [E, N]


@dataclass(frozen=True)
class RoutingVariant:
    """A routing and its top-k (None: all experts). `equal`, our addition, gives all experts the same weight."""

    routing: TaskRouting | Literal["equal"]
    top_k: int | None = None


@dataclass(frozen=True)
class Answered:
    """The answers of all experts to the prompts of one episode."""

    test: Answers
    permuted: Answers
    validation: Answers


@dataclass(frozen=True)
class Accuracies:
    """Shares of correctly answered test examples, by routing variant and by single expert [E]."""

    by_variant: dict[RoutingVariant, float]
    by_expert: list[float]


def compare_routings(
    answered: Answered,
    routings: Sequence[TaskRouting],
    top_ks: Sequence[int],
    *,
    newest_weight: float = PAPER_NEWEST_WEIGHT,
    nearness: Nearness | None = None,
) -> Accuracies:
    """Accuracies on the test examples of one episode: each routing with each top-k below E, and with all experts.

    `nearness` gives the weights of cluster routing (Eq. 3 on the whole prompt); only that routing needs it.
    """
    num_experts, num_examples = answered.test.scores_ENOT.shape[:2]
    by_variant = {RoutingVariant("equal"): answered.test.accuracy(equal(num_experts, num_examples))}
    for routing in routings:
        for top_k in top_k_choices(top_ks, num_experts):
            log_weights_EN = _log_weights(routing, top_k, answered, newest_weight, nearness)
            by_variant[RoutingVariant(routing, top_k)] = answered.test.accuracy(log_weights_EN)
    return Accuracies(by_variant, answered.test.is_right_EN.mean(1).tolist())


def top_k_choices(top_ks: Sequence[int], num_experts: int) -> Iterator[int | None]:
    """Each top-k below E once, then None for all experts."""
    yield from sorted({top_k for top_k in top_ks if top_k < num_experts})
    yield None


def _log_weights(
    routing: TaskRouting, top_k: int | None, answered: Answered, newest_weight: float, nearness: Nearness | None
) -> Tensor:
    num_examples = len(answered.test.labels_N)
    if routing == "fixed":
        return fixed_by_performance(answered.permuted, num_examples, top_k)
    if routing == "fixed-validation":
        return fixed_by_performance(answered.validation, num_examples, top_k)
    if routing == "updating":
        return updating_by_performance(answered.test, top_k, newest_weight)
    assert nearness is not None, "cluster routing needs clusters"
    return nearness(top_k)
