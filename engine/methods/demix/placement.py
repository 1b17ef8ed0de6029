"""Replaces every linear map of every feed-forward network by one map per expert (DEMix §3).

Or only of the networks in every k-th layer, with the others shared ("interleaved", DEMix §3.2).

Shapes: B rows, T positions, E experts.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from engine.config import DemixConfig
from engine.errors import ModelError
from engine.models.families import ffn_places
from engine.models.multi_expert import MultiExpertModel, Placement, RowOptions
from engine.models.rows import Rows, current_rows

_EVERY, _RESTORE = "expert_every", "Restore the base."
_FEW_ROWS = range(8, 65)  # of one position each: that many streams
_STACKED_BYTES = 16 << 20  # of one map of all experts: a copy that the backward pass keeps, where autocast makes none


class ExpertLinear(nn.Module):
    """One linear map per expert instead of a single one; the rows of the call select the expert."""

    def __init__(self, original: nn.Module, keys: Iterable[str]) -> None:
        super().__init__()
        self.experts = nn.ModuleDict({key: copy.deepcopy(original) for key in keys})

    def forward(self, x: Tensor) -> Any:
        """x is [B, T, in], or [B·T, in] from a family that flattens; so is the answer."""
        rows = current_rows()
        if len(rows.keys) == 1:
            return _apply(self.experts[rows.keys[0]], x)
        if torch.is_grad_enabled() and self._stacks(rows, x.device.type):
            return self._together(x, rows)
        per_row = x.shape[0] // sum(rows.num_rows)
        # split, not slices: its backward pass is one concatenation instead of E padded copies
        parts = x.split([count * per_row for count in rows.num_rows])
        outputs = [_apply(self.experts[key], part) for key, part in zip(rows.keys, parts, strict=True)]
        if isinstance(outputs[0], Tensor):
            return torch.cat(outputs)
        return tuple(map(torch.cat, zip(*outputs, strict=True)))  # some mixtures also give their routers' scores

    def map_of(self, key: str) -> nn.Module:
        """The map of this expert, to replace the layer with."""
        return self.experts[key]

    def _stacks(self, rows: Rows, device: str) -> bool:
        """Whether every expert has as many rows, and the weights of all may be copied at each call.

        On a GPU autocast copies them in any case, and one product takes fewer kernels than E.
        """
        weights: list[Any] = [getattr(self.experts[key], "weight", None) for key in rows.keys]
        if weights[0] is None or len(set(rows.num_rows)) > 1:  # a mixture of experts in the place of a map
            return False
        is_copied = device == "cuda" and torch.is_autocast_enabled(device)
        return is_copied or sum(weight.nbytes for weight in weights) <= _STACKED_BYTES

    def _together(self, x: Tensor, rows: Rows) -> Tensor:
        """The same as one batched product, so that training copies fewer activations."""
        maps: list[Any] = [self.experts[key] for key in rows.keys]
        weight = torch.stack([one.weight for one in maps])
        if isinstance(maps[0], nn.Linear):
            weight = weight.transpose(1, 2)
        groups = x.reshape(len(maps), -1, x.shape[-1])
        if maps[0].bias is None:
            out = torch.bmm(groups, weight)
        else:
            out = _with_bias(groups, weight, torch.stack([one.bias for one in maps])[:, None])
        return out.view(*x.shape[:-1], -1)


def _with_bias(groups: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """One operation takes a processor less time; on a GPU it would copy the bias to every row first."""
    if groups.device.type == "cpu":
        return torch.baddbmm(bias, groups, weight)
    out = torch.bmm(groups, weight)
    return out + bias.to(out.dtype)


def _apply(expert: nn.Module, x: Tensor) -> Any:
    """The expert's output. For some rows of one position, as streams together have, by the product W xᵀ.

    It is the same product; for 8 to 64 rows x Wᵀ takes a processor up to 1.9 times as long (measured with MKL).
    """
    is_few = x.dim() == 3 and x.shape[1] == 1 and x.shape[0] in _FEW_ROWS
    if not is_few or type(expert) is not nn.Linear or torch.is_grad_enabled() or x.device.type != "cpu":
        return expert(x)
    columns = x[:, 0].t()
    if expert.bias is None:
        return torch.mm(expert.weight, columns).t()[:, None]
    return torch.addmm(expert.bias[:, None], expert.weight, columns).t()[:, None]


class FeedForward(Placement):
    """Experts that replace the feed-forward networks of every k-th layer; each starts as a copy of the decoder's."""

    def __init__(self, method: RowOptions, expert_every: int = 1) -> None:
        super().__init__(method)
        self._expert_every = expert_every

    def build(self, lm: Any, keys: Sequence[str], config: Any, seed: int = 0) -> MultiExpertModel:
        every = config.expert_every if isinstance(config, DemixConfig) else 1  # baselines have no such choice
        return MultiExpertModel(lm, keys, FeedForward(self.method, every))

    def card(self) -> dict[str, Any]:
        return {} if self._expert_every == 1 else {_EVERY: self._expert_every}

    def of_card(self, card: Mapping[str, Any]) -> FeedForward:
        every = card.get(_EVERY, 1)
        if type(every) is not int or every < 1:
            raise ModelError(f"The card of the base gives {_EVERY} as {every!r}, not as a number of layers.", _RESTORE)
        return FeedForward(self.method, every)

    def insert(self, lm: Any, keys: Sequence[str]) -> dict[str, Any]:
        layers = {}
        for name, holder, attribute in list(ffn_places(lm, self._expert_every)):
            layers[name] = ExpertLinear(getattr(holder, attribute), keys)
            setattr(holder, attribute, layers[name])
        return layers
