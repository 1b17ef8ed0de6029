"""Which experts answer an example: routings over stored scores (C-BTM §5.1 and A.7, tables 1 and 11).

Every routing gives weights that stay the same for all tokens of an option; experts are mixed token by token, as in
Eq. 2: log p(option) = Σ_t log Σ_e w_e · p_e(t). The answer is the option of the highest probability.

Performance routing is a softmax over accuracies, which lie between 0 and 1: no expert has more than e times the weight
of another. Of few examples many accuracies are equal. So of equal weights those are kept that gave the right options
the higher likelihood, and what still is equal is kept together: the order of the experts decides nothing.
Shapes: E experts, N examples, O options, T tokens of an option.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from engine.config import Normalise
from engine.mixing.combine import mix


@dataclass(frozen=True)
class Answers:
    """Every expert on every example.

    scores_ENOT: log-likelihood of each token of each option, 0 behind its end. labels_N: the right options.
    divisors_O: by what the log-likelihood of an option is divided, 1 or its number of tokens.
    """

    scores_ENOT: Tensor
    labels_N: Tensor
    divisors_O: Tensor

    def chosen(self, log_weights: Tensor) -> Tensor:
        """The option [N] that a mixture with weights [E, N] gives the highest probability."""
        mixed_NOT = mix(log_weights.double(), self.scores_ENOT.double())
        return (mixed_NOT.sum(-1) / self.divisors_O).argmax(-1)

    def accuracy(self, log_weights: Tensor) -> float:
        """The share of examples that a mixture with weights [E, N] answers right."""
        return float((self.chosen(log_weights) == self.labels_N).double().mean())

    @property
    def alone_ENO(self) -> Tensor:
        """How probable each expert finds each option, as it is compared."""
        return self.scores_ENOT.double().sum(-1) / self.divisors_O

    @property
    def is_right_EN(self) -> Tensor:
        """1 where an expert alone is right, else 0."""
        return (self.alone_ENO.argmax(-1) == self.labels_N).double()

    @property
    def right_EN(self) -> Tensor:
        """How probable each expert alone finds the right option."""
        places = self.labels_N.expand(len(self.scores_ENOT), -1)[..., None]
        return self.alone_ENO.gather(-1, places)[..., 0]


def divisors(lengths_O: Tensor, normalise: Normalise) -> Tensor:
    """By what log-likelihoods of options are divided: `none` (paper) or their `tokens`."""
    return lengths_O.double() if normalise == "tokens" else torch.ones(len(lengths_O), dtype=torch.float64)


def equal(num_experts: int, num_examples: int) -> Tensor:
    """Log-weights [E, N] of experts that all count the same."""
    return torch.zeros(num_experts, num_examples, dtype=torch.float64).log_softmax(0)


def fixed_by_performance(trial: Answers, num_examples: int, top_k: int | None) -> Tensor:
    """Log-weights [E, N]: a softmax over the accuracies on a trial, the same for all examples (A.7).

    With only demonstrations the trial is of their permutations, with validation examples it is of these.
    """
    log_weights_E = trial.is_right_EN.mean(1).log_softmax(0)
    kept_E1 = keep_best(log_weights_E[:, None], trial.right_EN.sum(1)[:, None], top_k)
    return kept_E1.expand(-1, num_examples)


def updating_by_performance(seen: Answers, top_k: int | None, newest_weight: float) -> Tensor:
    """Log-weights [E, N] before each example: equal at first, then learnt from the examples before it (A.7).

    An exponential moving average of the softmax over who was right, the newest example with the share `newest_weight`.
    It is told the right answer of every example before, which no other routing is. (The paper ends with “this
    distribution is fixed for all test examples”, which an average over these same examples cannot be.)
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
    """The `top_k` largest weights of each example, scaled to sum 1; of equal ones those with more evidence.

    What is equal in both is kept together, so that more than `top_k` may be left. All are kept for None.
    """
    if top_k is None or top_k >= len(log_weights_EN):
        return log_weights_EN.log_softmax(0)
    order_EN = np.lexsort((evidence_EN.numpy(), log_weights_EN.numpy()), axis=0)
    last_1N = torch.from_numpy(order_EN)[[-top_k]]
    weight_1N, evidence_1N = log_weights_EN.gather(0, last_1N), evidence_EN.gather(0, last_1N)
    is_equal_EN = (log_weights_EN == weight_1N) & (evidence_EN >= evidence_1N)
    is_kept_EN = (log_weights_EN > weight_1N) | is_equal_EN
    return torch.where(is_kept_EN, log_weights_EN, -torch.inf).log_softmax(0)
