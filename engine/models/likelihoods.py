"""Logits, log-likelihoods and losses from a decoder's last hidden states, without all logits in memory.

Some families scale logits, cap them, or transform the states first. That is code of each family's own forward pass, so
it is run as it is, with a decoder in front that answers with the given states.

Shapes: B rows, T positions, D width of the embeddings, V vocabulary, N some of the B·T positions.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from engine.models.compiled import cross_entropy_of


class _Read:
    """Answers like a decoder that has read something already, and like what that decoder gives back."""

    def __init__(self, decoder: nn.Module, hidden_BTD: Tensor) -> None:
        self._decoder = decoder  # whose numbers some heads look up
        self.last_hidden_state = hidden_BTD

    def __call__(self, *_: Any, **__: Any) -> _Read:
        return self

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):  # everything else that a decoder gives back
            return (self.last_hidden_state, None)[index]
        return self.last_hidden_state if index == 0 else None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self if name in ("decoder", "language_model", "model") else getattr(self._decoder, name, None)


def decoder_of(lm: Any) -> Any:
    """The model without its output embeddings; its answer has `last_hidden_state`."""
    return lm.model if lm.base_model is lm else lm.base_model


def head_of(lm: Any) -> Callable[[Tensor], Tensor]:
    """The function from hidden states [B, T, D] to logits [B, T, V] that the model's own forward pass ends with.

    It runs no layer and changes nothing: any number of threads may call it.
    """
    if not isinstance(lm, nn.Module):  # nothing but a head
        output_embeddings: Callable[[Tensor], Tensor] = lm.get_output_embeddings()
        return output_embeddings
    decoder = decoder_of(lm)
    prefix = next(name for name, one in lm.named_children() if one is decoder)
    shell = copy.copy(lm)
    shell._modules = {name: module for name, module in lm._modules.items() if name != prefix}

    def head(hidden_BTD: Tensor) -> Tensor:
        own = copy.copy(shell)
        own.__dict__[prefix] = _Read(decoder, hidden_BTD)
        ids = torch.zeros(hidden_BTD.shape[:-1], dtype=torch.long, device=hidden_BTD.device)
        logits: Tensor = own.forward(input_ids=ids).logits
        return logits

    return head


_LOGITS_PER_CHUNK = 1 << 20  # 4 MB in float32
_LOGITS_PER_LOSS_CHUNK = {"cpu": 1 << 26, "cuda": 1 << 28}  # 256 MB in float32; their gradients take as much again
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


@dataclass(frozen=True)
class Objective:
    """What an update minimises: the sum of the losses of the targets that count, divided by a number."""

    divisor: float
    counted_BT: Tensor | None = None  # None: all

    def of(self, losses_BT: Tensor) -> Tensor:
        """The scalar, with gradients."""
        counted = losses_BT if self.counted_BT is None else torch.where(self.counted_BT, losses_BT, 0.0)
        return counted.sum() / self.divisor

    def parts(self, num_positions: int) -> Iterator[Objective]:
        """The objectives of some positions at a time, whose sum is this one; without end where all targets count."""
        if self.counted_BT is None:
            return repeat(self)
        return (replace(self, counted_BT=some) for some in self.counted_BT.split(num_positions, 1))


class TokenLosses(NamedTuple):
    """The objective, a scalar with gradients, and the cross-entropy [B, T] of each target in nats, without."""

    objective: Tensor
    each_BT: Tensor


def losses_from(
    lm: Any, logits: Callable[[Tensor], Tensor], hidden_BTD: Tensor, targets_BT: Tensor, objective: Objective
) -> TokenLosses:
    """The losses (float32) of targets after hidden states.

    `logits` makes logits [B, t, V] of hidden states [B, t, D]. Where a batch has more than a chunk may have, they are
    made for some positions at a time, and their gradients at once: memory does not grow with the vocabulary times the
    text, and nothing is computed again. The losses are the same; gradients of the head are the sums of the chunks'.
    """
    most = _LOGITS_PER_LOSS_CHUNK.get(hidden_BTD.device.type, _LOGITS_PER_LOSS_CHUNK["cpu"])
    num_positions = max(1, most // (int(lm.config.vocab_size) * max(1, len(targets_BT))))
    cross_entropy = cross_entropy_of(lm)

    def losses_of(some_BtD: Tensor, ids_Bt: Tensor) -> Tensor:
        return cross_entropy(logits(some_BtD).flatten(0, 1), ids_Bt.flatten()).view(ids_Bt.shape)

    if targets_BT.shape[1] <= num_positions:
        losses_BT = losses_of(hidden_BTD, targets_BT)
        return TokenLosses(objective.of(losses_BT), losses_BT.detach())
    chunks = zip(targets_BT.split(num_positions, 1), objective.parts(num_positions), strict=False)
    modules = [lm.get_output_embeddings()]  # and what else lies next to the decoder
    modules += [child for child in lm.children() if child is not decoder_of(lm)] if isinstance(lm, nn.Module) else []
    parameters = dict.fromkeys(parameter for module in modules for parameter in module.parameters())
    head = [parameter for parameter in parameters if parameter.requires_grad]
    return TokenLosses(*_Chunked.apply(losses_of, list(chunks), num_positions, hidden_BTD, *head))  # type: ignore[no-untyped-call]


class _Chunked(torch.autograd.Function):
    """An objective whose gradients are made chunk by chunk, together with the losses."""

    @staticmethod
    def forward(
        ctx: Any,
        losses_of: Callable[[Tensor, Tensor], Tensor],
        chunks: Sequence[tuple[Tensor, Objective]],
        num_positions: int,
        hidden_BTD: Tensor,
        *head: Tensor,
    ) -> tuple[Tensor, Tensor]:
        values, losses, of_hidden, of_head = [], [], [], list[Tensor | None]([None] * len(head))
        for some_BtD, (ids_Bt, objective) in zip(hidden_BTD.split(num_positions, 1), chunks, strict=True):
            with torch.enable_grad():
                leaf_BtD = some_BtD.detach().requires_grad_()
                losses_Bt = losses_of(leaf_BtD, ids_Bt)
                value = objective.of(losses_Bt)
            of_leaf, *of_parameters = torch.autograd.grad(value, [leaf_BtD, *head], allow_unused=True)
            of_head = list(map(_sum, of_head, of_parameters))
            values.append(value.detach())
            losses.append(losses_Bt.detach())
            of_hidden.append(of_leaf)
        ctx.save_for_backward(torch.cat(of_hidden, dim=1), *of_head)
        each_BT = torch.cat(losses, dim=1)
        ctx.mark_non_differentiable(each_BT)
        return torch.stack(values).sum(), each_BT

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_objective: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        gradients = (None if tensor is None else tensor * of_objective for tensor in ctx.saved_tensors)
        return None, None, None, *gradients


def _sum(total: Tensor | None, more: Tensor | None) -> Tensor | None:
    """The first, with the second added in place."""
    return more if total is None else total if more is None else total.add_(more)


def _pieces(lm: Any, hidden_BTD: Tensor, targets_BT: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    head = head_of(lm)
    chunk_size = max(_LEAST_POSITIONS, _LOGITS_PER_CHUNK // int(lm.config.vocab_size))
    for some_ND, ids_N in zip(
        hidden_BTD.flatten(0, 1).split(chunk_size), targets_BT.flatten().split(chunk_size), strict=True
    ):
        yield head(some_ND[None])[0], ids_N


def _of_targets(logits_NV: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
    """float32 [N] and bool [N]; spends the logits: a second array of their size would take as long as the exponentials.

    The greatest logit is found among the others and then compared with the target's, which also tells who is greater.
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
