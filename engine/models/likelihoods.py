"""Log-likelihoods and losses of target tokens from a decoder's last hidden states, without all logits in memory.

Shapes: B rows, T positions, D width of the embeddings, V vocabulary, N some of the B·T positions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from engine.models.compiled import cross_entropy_of
from engine.models.heads import head_of

_LOGITS_PER_CHUNK = 1 << 20  # 4 MB in float32
_LOGITS_PER_LOSS_CHUNK = 1 << 26  # 256 MB in float32; their gradients take as much again
_LEAST_POSITIONS = 128  # at a time: with fewer, reading the head's weights takes longer than multiplying by them


class TokenScores(NamedTuple):
    """The natural log-likelihood of each target (float32), and whether it was the most probable token (bool)."""

    logprobs_BT: Tensor
    hits_BT: Tensor


@torch.no_grad()
def token_scores(lm: Any, hidden_BTD: Tensor, targets_BT: Tensor) -> TokenScores:
    """The scores [B, T] of each target, without gradients and without all logits in memory.

    They are made for some positions at a time, few enough to stay in a processor's cache where the vocabulary allows:
    quicker, and memory does not grow with the text. Of tokens that are equally probable the one with the lowest id
    counts as the most probable, as in torch.argmax.
    """
    logprobs, hits = zip(*(_of_targets(*piece) for piece in _pieces(lm, hidden_BTD, targets_BT)), strict=True)
    return TokenScores(torch.cat(logprobs).view(targets_BT.shape), torch.cat(hits).view(targets_BT.shape))


@torch.no_grad()
def log_likelihoods(lm: Any, hidden_BTD: Tensor, targets_BT: Tensor) -> Tensor:
    """The natural log-likelihood [B, T] of each target alone, float32, without all logits in memory."""
    pieces = _pieces(lm, hidden_BTD, targets_BT)
    return torch.cat([_of_target(*piece) for piece in pieces]).view(targets_BT.shape)


def losses_from(lm: Any, logits: Callable[[Tensor], Tensor], hidden_BTD: Tensor, targets_BT: Tensor) -> Tensor:
    """The cross-entropy [B, T] of each target in nats, float32, with gradients.

    `logits` makes logits [B, t, V] of hidden states [B, t, D]. Where a batch has more than a chunk may have, they are
    made for some positions at a time and made again in the backward pass: memory does not grow with the vocabulary
    times the text. The losses are the same; gradients of the head are the sums of the chunks'.
    """
    num_positions = max(1, _LOGITS_PER_LOSS_CHUNK // (int(lm.config.vocab_size) * max(1, len(targets_BT))))
    cross_entropy = cross_entropy_of(lm)

    def losses_of(some_BtD: Tensor, ids_Bt: Tensor) -> Tensor:
        return cross_entropy(logits(some_BtD).flatten(0, 1), ids_Bt.flatten()).view(ids_Bt.shape)

    if targets_BT.shape[1] <= num_positions:
        return losses_of(hidden_BTD, targets_BT)
    chunks = zip(hidden_BTD.split(num_positions, 1), targets_BT.split(num_positions, 1), strict=True)
    return torch.cat([checkpoint(losses_of, *chunk, use_reentrant=False) for chunk in chunks], dim=1)


def _pieces(lm: Any, hidden_BTD: Tensor, targets_BT: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Logits [N, V] and targets [N] of some positions at a time."""
    head = head_of(lm)
    chunk_size = max(_LEAST_POSITIONS, _LOGITS_PER_CHUNK // int(lm.config.vocab_size))
    for some_ND, ids_N in zip(
        hidden_BTD.flatten(0, 1).split(chunk_size), targets_BT.flatten().split(chunk_size), strict=True
    ):
        yield head(some_ND[None])[0], ids_N


def _of_target(logits_NV: Tensor, targets_N: Tensor) -> Tensor:
    """float32 [N]; spends the logits."""
    logits_NV = logits_NV.float()
    chosen_N, greatest_N = logits_NV.gather(-1, targets_N[:, None])[:, 0], logits_NV.amax(-1)
    return chosen_N - greatest_N - logits_NV.sub_(greatest_N[:, None]).exp_().sum(-1).log()


def _of_targets(logits_NV: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
    """float32 [N] and bool [N]; spends the logits: a second array of their size would take as long as the exponentials.

    The greatest logit is found among the others and then beside the target's: so it also tells who is greater.
    """
    logits_NV, targets_N1 = logits_NV.float(), targets_N[:, None]
    chosen_N1 = logits_NV.gather(-1, targets_N1)
    others_N1 = logits_NV.scatter_(-1, targets_N1, -math.inf).amax(-1, keepdim=True)
    logits_NV.scatter_(-1, targets_N1, chosen_N1)
    hits_N, ties_N = (chosen_N1 > others_N1)[:, 0], (chosen_N1 == others_N1)[:, 0]
    if ties_N.any():  # argmax takes as long as all the rest
        hits_N[ties_N] = logits_NV[ties_N].argmax(-1) == targets_N[ties_N]
    greatest_N1 = torch.maximum(chosen_N1, others_N1)
    logprobs_N = (chosen_N1 - greatest_N1)[:, 0] - logits_NV.sub_(greatest_N1).exp_().sum(-1).log()
    return logprobs_N, hits_N
