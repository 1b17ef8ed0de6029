"""Routings that weigh experts per example, over stored scores (C-BTM §5.1 and A.7, tables 1 and 11).

A routing's weights are the same for all tokens of an option; experts are mixed token by token, as in Eq. 2:
log p(option) = Σ_t log Σ_e w_e · p_e(t). The answer is the most probable option.

Performance routing is a softmax over accuracies between 0 and 1: no expert has more than e times the weight of
another. With few examples many accuracies tie. Among equal weights, top-k keeps the experts with the higher likelihood
of the right options; experts that tie in both are kept together, so the order of the experts decides nothing.
Shapes: E experts, N examples, O options, T tokens of an option.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from engine.config import PAPER_NEWEST_WEIGHT, Normalise, TaskRouting
from engine.mixing.base import mix


@dataclass(frozen=True)
class Answers:
    """The scores of every expert on every example.

    scores_ENOT: log-likelihood of each token of each option, 0 after its end. labels_N: the right options.
    divisors_O: the divisor of an option's log-likelihood, 1 or its number of tokens.
    """

    scores_ENOT: Tensor
    labels_N: Tensor
    divisors_O: Tensor

    def best_options(self, log_weights: Tensor) -> Tensor:
        """The option [N] that a mixture with weights [E, N] gives the highest probability."""
        mixed_NOT = mix(log_weights.double(), self.scores_ENOT.double())
        return (mixed_NOT.sum(-1) / self.divisors_O).argmax(-1)

    def accuracy(self, log_weights: Tensor) -> float:
        """The share of examples that a mixture with weights [E, N] answers right."""
        return float((self.best_options(log_weights) == self.labels_N).double().mean())

    @property
    def option_logprobs_ENO(self) -> Tensor:
        """The normalised log-probability of each option under each expert."""
        return self.scores_ENOT.double().sum(-1) / self.divisors_O

    @property
    def is_right_EN(self) -> Tensor:
        """1 where a single expert is right, else 0."""
        return (self.option_logprobs_ENO.argmax(-1) == self.labels_N).double()

    @property
    def right_EN(self) -> Tensor:
        """The normalised log-probability of the right option under each expert."""
        places = self.labels_N.expand(len(self.scores_ENOT), -1)[..., None]
        return self.option_logprobs_ENO.gather(-1, places)[..., 0]


def divisors(lengths_O: Tensor, normalise: Normalise) -> Tensor:
    """The divisors of options' log-likelihoods: 1 for `none` (paper), or their number of `tokens`."""
    return lengths_O.double() if normalise == "tokens" else torch.ones(len(lengths_O), dtype=torch.float64)


def equal(num_experts: int, num_examples: int) -> Tensor:
    """Equal log-weights [E, N] for all experts."""
    return torch.zeros(num_experts, num_examples, dtype=torch.float64).log_softmax(0)


def fixed_by_performance(trial: Answers, num_examples: int, top_k: int | None) -> Tensor:
    """Log-weights [E, N]: a softmax over the accuracies on a trial, the same for all examples (A.7).

    The trial uses permutations of the demonstrations, or validation examples.
    """
    log_weights_E = trial.is_right_EN.mean(1).log_softmax(0)
    best_E1 = keep_best(log_weights_E[:, None], trial.right_EN.sum(1)[:, None], top_k)
    return best_E1.expand(-1, num_examples)


def updating_by_performance(seen: Answers, top_k: int | None, newest_weight: float) -> Tensor:
    """Log-weights [E, N] before each example: equal at first, then learnt from the examples before it (A.7).

    An exponential moving average of the softmax over correctness; the newest example has the share `newest_weight`.
    Unlike other routings it uses the right answers of all previous examples. (The paper ends with “this distribution
    is fixed for all test examples”, which an average over these same examples cannot be.)
    """
    shares_EN = seen.is_right_EN.softmax(0)
    weights_EN = torch.empty_like(shares_EN)
    weights_EN[:, 0] = 1 / len(shares_EN)
    for example in range(1, shares_EN.shape[1]):
        before_E, newest_E = weights_EN[:, example - 1], shares_EN[:, example - 1]
        weights_EN[:, example] = (1 - newest_weight) * before_E + newest_weight * newest_E
    evidence_EN = seen.right_EN.cumsum(1) - seen.right_EN
    return keep_best(weights_EN.log(), evidence_EN, top_k)


def keep_best(log_weights_EN: Tensor, evidence_EN: Tensor, top_k: int | None) -> Tensor:
    """The `top_k` largest weights of each example, normalised; ties are broken by evidence.

    Experts that tie in both stay together, so more than `top_k` may be left. None keeps all.
    """
    if top_k is None or top_k >= len(log_weights_EN):
        return log_weights_EN.log_softmax(0)
    order_EN = np.lexsort((evidence_EN.numpy(), log_weights_EN.numpy()), axis=0)
    last_1N = torch.from_numpy(order_EN)[[-top_k]]
    weight_1N, evidence_1N = log_weights_EN.gather(0, last_1N), evidence_EN.gather(0, last_1N)
    is_equal_EN = (log_weights_EN == weight_1N) & (evidence_EN >= evidence_1N)
    is_top_EN = (log_weights_EN > weight_1N) | is_equal_EN
    return torch.where(is_top_EN, log_weights_EN, -torch.inf).log_softmax(0)


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
        for top_k in (*sorted({top_k for top_k in top_ks if top_k < num_experts}), None):
            log_weights_EN = _log_weights(routing, top_k, answered, newest_weight, nearness)
            by_variant[RoutingVariant(routing, top_k)] = answered.test.accuracy(log_weights_EN)
    return Accuracies(by_variant, answered.test.is_right_EN.mean(1).tolist())


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
