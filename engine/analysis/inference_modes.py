"""The inference modes of DEMix (tables 3 and 5), compared on one scored text."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.config import PAPER_NEWEST_WEIGHT
from engine.inference.scores import as_blocks, mixed_perplexity, perplexity
from engine.mixing.base import FixedGate, Gate
from engine.mixing.evidence import AnyEvidence
from engine.mixing.posterior import PosteriorGate, UpdatingGate, end_of_block_posteriors
from engine.statistics.perplexity import perplexity_of


@dataclass(frozen=True)
class InferenceModes:
    """The perplexity of one text under each mode; None where a mode cannot be computed."""

    naive: float  # the best single expert of this text, chosen in hindsight as in the paper
    label: float | None  # the expert of the text's own domain
    average: float
    uniform: float
    updating: float
    cached: float | None  # with a prior estimated on other text of the domain
    oracle: float  # the best single expert of each block, chosen in hindsight


def compare_inference_modes(
    scores_EX: Tensor,
    block_size: int,
    *,
    own_row: int | None = None,
    cached_prior_E: Tensor | None = None,
    evidence: AnyEvidence = "prefix",
    newest_weight: float = PAPER_NEWEST_WEIGHT,
    counted_X: Tensor | None = None,
) -> InferenceModes:
    """All modes from the scores [E, tokens] of the experts; `own` is the row of the domain's own expert.

    Perplexities are of the tokens that count; None: of all.
    """
    equal = [1.0] * len(scores_EX)

    def perplexity_with(gate: Gate) -> float:
        return mixed_perplexity(gate, scores_EX, block_size, counted_X=counted_X)

    by_expert = [perplexity(row, counted_X) for row in scores_EX]
    updating = UpdatingGate(equal, evidence, newest_weight=newest_weight, update_every=block_size)
    cached = None if cached_prior_E is None else perplexity_with(PosteriorGate(cached_prior_E.tolist(), evidence))
    return InferenceModes(
        naive=min(by_expert),
        label=None if own_row is None else by_expert[own_row],
        average=perplexity_with(FixedGate(equal)),
        uniform=perplexity_with(PosteriorGate(equal, evidence)),
        updating=perplexity_with(updating),
        cached=cached,
        oracle=oracle_perplexity(scores_EX, block_size, counted_X),
    )


def oracle_perplexity(scores_EX: Tensor, block_size: int, counted_X: Tensor | None = None) -> float:
    """The perplexity of choosing for every block the one expert that gave it the highest likelihood.

    No choice of one expert per block is better, so it is never above naive or label, nor above a posterior with prefix
    evidence. A mixture whose weights change within a block may be better: then the gap is negative.
    """
    num_tokens = scores_EX.shape[1]
    if counted_X is not None:
        scores_EX, num_tokens = scores_EX * counted_X, int(counted_X.sum())
    best_N = as_blocks(scores_EX, block_size).sum(-1, dtype=torch.float64).amax(0)
    return perplexity_of(-float(best_N.sum()) / num_tokens)


def trajectory(gate: UpdatingGate, blocks_ENT: Tensor) -> Tensor:
    """The prior [E, N+1] before each block of `gate.update_every` tokens and after the last: figures 7 and 8."""
    assert blocks_ENT.shape[2] == gate.update_every, "a prior learns at the ends of blocks of another length"
    return gate.priors(blocks_ENT).exp()


def running_mean(gate: PosteriorGate, blocks_ENT: Tensor) -> Tensor:
    """The mean end-of-block posterior [E, N+1] of the first 0 … N blocks: a cached prior as it is being estimated."""
    posteriors_EN = end_of_block_posteriors(gate, blocks_ENT)
    counts_N = torch.arange(1, posteriors_EN.shape[1] + 1, dtype=posteriors_EN.dtype)
    start_E1 = gate.log_prior_E.exp()[:, None]
    return torch.cat([start_E1, posteriors_EN.cumsum(1) / counts_N], 1)


LATE = 0.9  # of the blocks: a trajectory that moves until then has not been seen to settle
_TOLERANCE = 0.05  # of a share


def stable_after(trajectory_EN: Tensor) -> int | None:
    """The number of blocks after which no share of a trajectory moves far from its last value.

    None if that is in the last tenth: every trajectory is near its last value at its end, whatever the text.
    """
    moving = ((trajectory_EN - trajectory_EN[:, -1:]).abs().amax(0) > _TOLERANCE).nonzero()
    point = int(moving[-1]) + 1 if len(moving) else 0
    return point if point <= LATE * (trajectory_EN.shape[1] - 1) else None
