"""The one interface of every gate: weights before a token, evidence after it.

All arithmetic is over log-probabilities in float64. Letters: E experts, N blocks, T positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from engine.errors import MixtureError

FLOOR = -1e4  # log-probability of the impossible: finite, so that evidence never becomes NaN (law L14)


class Gate(Protocol):
    """Gives the log-weights [E] of the next position; `block` gives those of whole blocks at once.

    The two agree: `block(x)[:, n, t]` is what a stream says that was fresh at the beginning of block n (of the first
    block, where the gate learns from block to block) and observed `x[:, n, :t]`.
    """

    def start(self) -> Stream:
        """A fresh stream, before the first token."""
        ...

    def block(self, logprobs_ENT: Tensor) -> Tensor:
        """Log-weights [E, N, T] of every position of blocks, each from what came before it."""
        ...

    def total(self, logprobs_ENT: Tensor) -> float:
        """The mixture's log-likelihood of all blocks together (nats): the sum of `mix(block(x), x)`."""
        ...


class Stream(Protocol):
    """A gate on one growing text."""

    def log_weights(self) -> Tensor:
        """Log-weights [E] for the next position; their exponentials sum to 1."""
        ...

    def observe(self, logprobs_E: Tensor) -> None:
        """Takes in the log-probability that each expert gave the token that came."""
        ...


def normalised_prior(weights: Sequence[float]) -> Tensor:
    """Log of weights scaled to sum 1, float64 [E]; raises MixtureError for weights that are none."""
    prior_E = torch.tensor(list(weights), dtype=torch.float64)
    total = float(prior_E.sum())
    if not len(prior_E) or not torch.isfinite(prior_E).all() or (prior_E < 0).any() or total <= 0:
        raise MixtureError(
            f"Weights must be numbers of at least 0 with a positive sum, but are {list(weights)} instead.",
            "Leave at least one expert on and give it weight.",
        )
    if int((prior_E > 0).sum()) == 1:
        return torch.where(prior_E > 0, 0.0, -torch.inf)  # exactly one: no rounding (law L1)
    prior_E = prior_E / prior_E.max()  # equal weights become ones, so that shares of 1/E are uniform (law L3)
    return (prior_E / prior_E.sum()).log()


def keep_top(log_weights: Tensor, top_k: int | None) -> Tensor:
    """Keeps the `top_k` largest weights along the first axis and renormalises; all of them when None."""
    num_experts = log_weights.shape[0]
    if top_k is None or top_k >= num_experts:
        return log_weights
    kept = torch.full_like(log_weights, -torch.inf)
    best = log_weights.topk(top_k, dim=0)
    kept.scatter_(0, best.indices, best.values)
    return kept - kept.logsumexp(0, keepdim=True)
