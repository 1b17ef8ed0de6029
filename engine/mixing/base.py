"""The interface of every gate, the sum over experts, and the gate of fixed weights.

All arithmetic is over log-probabilities in float64. Letters: E experts, N blocks, T positions, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor

from engine.errors import MixtureError
from engine.mixing.score_sums import fixed_sums

if TYPE_CHECKING:
    from engine.clusters.distances import Distances

FLOOR = -1e4  # lowest log-probability: finite, so that evidence never becomes NaN (law L14)
_CHUNK_SIZE = 1 << 18  # 2 MB in float64


class Gate(Protocol):
    """Gives the log-weights [E] of the next position; `block` gives those of whole blocks at once.

    The two agree: `block(x)[:, n, t]` are the weights of a stream that starts at block n and has observed
    `x[:, n, :t]`; where the prior learns, of a stream that starts at the first block and has observed all before.
    `distances` are those of the same tokens to the centres of a clustering; gates without a clustering ignore them.
    """

    needs_logprobs: bool  # whether weights depend on log-probabilities; if not, experts of weight 0 need not run

    def start(self) -> Stream:
        """A fresh stream, before the first token."""

    def block(self, logprobs_ENT: Tensor, distances: Distances | None = None) -> Tensor:
        """Log-weights [E, N, T] of every position of blocks, each from what came before it."""

    def mixed(self, logprobs_ENT: Tensor, distances: Distances | None = None) -> Tensor:
        """The mixture's log-likelihood [N, T] of every token, float64: `mix(block(x), x)`, some blocks at a time."""

    def total(self, logprobs_ENT: Tensor, distances: Distances | None = None) -> float:
        """The mixture's log-likelihood of all blocks together (nats): the sum of `mixed(x)`."""


Weigher = Callable[
    [range, Tensor], Tensor
]  # the log-weights [E, N, T] of blocks, from their numbers and log-likelihoods


class BlockGate:
    """A gate whose weights in some blocks are computed without the log-likelihoods of the others."""

    def weigher(self, logprobs_ENT: Tensor, distances: Distances | None) -> Weigher:
        """Prepares what the blocks have in common, and returns a function for some of them."""
        raise NotImplementedError

    def block(self, logprobs_ENT: Tensor, distances: Distances | None = None) -> Tensor:
        return self.weigher(logprobs_ENT, distances)(range(logprobs_ENT.shape[1]), logprobs_ENT)

    def mixed(self, logprobs_ENT: Tensor, distances: Distances | None = None) -> Tensor:
        weigh, pieces, first = self.weigher(logprobs_ENT, distances), [], 0
        num_blocks = max(1, _CHUNK_SIZE // max(1, logprobs_ENT[:, 0].numel()))  # as many as fit a processor's cache
        for some_ENT in logprobs_ENT.split(num_blocks, 1):
            blocks = range(first, first + some_ENT.shape[1])
            pieces.append(mix(weigh(blocks, some_ENT), some_ENT.double()))
            first = blocks.stop
        return torch.cat(pieces)

    def total(self, logprobs_ENT: Tensor, distances: Distances | None = None) -> float:
        return float(self.mixed(logprobs_ENT, distances).sum())


class Stream(Protocol):
    """A gate on one growing text."""

    def log_weights(self) -> Tensor:
        """Log-weights [E] for the next position; their exponentials sum to 1."""

    def begin(self, token: int) -> None:
        """Reads the first token of a text or a block, which no expert predicts."""

    def observe(self, logprobs_E: Tensor, token: int) -> None:
        """Reads the next token, and the log-probability that each expert gave it.

        An expert that does not run has none; only gates that do not need log-probabilities meet such experts.
        """


def normalised_prior(weights: Sequence[float]) -> Tensor:
    """Log of weights scaled to sum 1, float64 [E]; raises MixtureError for weights that cannot be scaled."""
    prior_E = torch.tensor(list(weights), dtype=torch.float64)
    total = float(prior_E.sum())
    if not len(prior_E) or not torch.isfinite(prior_E).all() or (prior_E < 0).any() or total <= 0:
        raise MixtureError(
            f"Weights must be numbers of at least 0 with a positive sum, not {list(weights)}.",
            "Switch at least one expert on and give it a weight above 0.",
        )
    if int((prior_E > 0).sum()) == 1:
        return torch.where(prior_E > 0, 0.0, -torch.inf)  # exactly one: no rounding (law L1)
    prior_E = prior_E / prior_E.max()  # equal weights become ones, so that shares of 1/E are uniform (law L3)
    return (prior_E / prior_E.sum()).log()


def keep_top(log_weights: Tensor, top_k: int | None) -> Tensor:
    """The `top_k` largest weights along the first axis, scaled to sum 1; all of them when None.

    Of equal weights those that come first are kept, in a stream as in a block.
    """
    if top_k is not None and top_k < len(log_weights):
        ceiling = (top_k - 0.5 - _num_before(log_weights).to(log_weights.dtype)) * torch.inf  # -inf unless kept
        log_weights = torch.minimum(log_weights, ceiling)  # four times as fast as a mask
    return log_weights.log_softmax(0)


def _num_before(log_weights: Tensor) -> Tensor:
    """For each weight, the number of weights on the first axis that are larger, or equal and before it.

    Counted pair by pair: comparing rows is much faster than sorting each position.
    """
    rows = log_weights.flatten(1).numpy() if log_weights.dim() > 1 else log_weights[:, None].numpy()
    before = np.zeros(rows.shape, dtype=np.min_scalar_type(len(rows)))  # mostly one byte, which is much of the speed
    for position, row in enumerate(rows):
        is_larger = (rows[position + 1 :] > row).view(np.uint8)
        before[position] += is_larger.sum(0, dtype=before.dtype)
        before[position + 1 :] += 1 - is_larger
    return torch.from_numpy(before).view(log_weights.shape)


def mix(log_weights_E: Tensor, logprobs_E: Tensor) -> Tensor:
    """log Σ_e w_e · p_e over the first axis; trailing axes of either are broadcast.

    Weights [E] against log-probabilities [E, V] give [V]; [E, N, T] against [E, N, T] give [N, T]. An expert of weight
    0 takes no part even where its log-probability is not a number.
    """
    extra = logprobs_E.dim() - log_weights_E.dim()
    weights = log_weights_E.to(logprobs_E.device, logprobs_E.dtype).view(*log_weights_E.shape, *[1] * extra)
    logs = weights + logprobs_E
    top = logs.amax(0)
    if top.isnan().any():
        logs = torch.where(weights == -torch.inf, -torch.inf, logs)
        top = logs.amax(0)
    return _log_sum(logs, top)


def _log_sum(logs: Tensor, top: Tensor) -> Tensor:
    """log Σ exp over the first axis, whose largest are `top`; -inf where all are.

    What is too small to change the sum is raised to what just does not underflow: processors take fifty times as long
    for an exponential that does, and a posterior that is sure of one expert has little else.
    """
    numbers = torch.finfo(logs.dtype)
    below = (logs - top.clamp(min=numbers.min)).clamp_(min=math.log(numbers.tiny) + 1)
    return below.exp_().sum(0).log_() + top


class FixedGate(BlockGate):
    """The given weights, scaled to sum 1, at every position; equal ones are DEMix's “average”."""

    needs_logprobs = False

    def __init__(self, weights: Sequence[float], top_k: int | None = None) -> None:
        self.log_weights_E = keep_top(normalised_prior(weights), top_k)

    def start(self) -> FixedStream:
        return FixedStream(self.log_weights_E)

    def weigher(self, _logprobs_ENT: Tensor, _distances: Distances | None) -> Weigher:
        return lambda _, some_ENT: self.log_weights_E.view(-1, 1, 1).expand(some_ENT.shape)

    def total(self, logprobs_ENT: Tensor, _distances: Distances | None = None) -> float:
        total = float(fixed_sums(self.log_weights_E.numpy(), logprobs_ENT.flatten(1).numpy()).sum())
        return float(self.mixed(logprobs_ENT).sum()) if math.isnan(total) else total


class FixedStream:
    """The same weights at every token."""

    def __init__(self, log_weights_E: Tensor) -> None:
        self._log_weights_E = log_weights_E

    def log_weights(self) -> Tensor:
        return self._log_weights_E

    def begin(self, token: int) -> None:
        """Does nothing: the weights do not depend on the text."""

    def observe(self, logprobs_E: Tensor, token: int) -> None:
        """Does nothing: the weights do not depend on the text."""
