"""A block of a MoDE model: some layers of a frozen decoder, with experts in parallel (Eq. 1).

The active experts are set per call: inactive ones are not computed, and the others share their weight.

Shapes: B rows, T positions, D width, E active experts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

ODDS_SCALE = 64.0  # how much quicker an optimizer of unit steps, such as Adam, opens an expert than by odds only


def gate_weights(slopes_BTE: Tensor, odds_E: Tensor) -> Tensor:
    """The gate of a block (Eq. 2), softmax(Linear(x)): weights [B, T, 1 + E] of the backbone and each expert.

    They are not negative, and 1 together (law L5). `slopes_BTE` are the linear parts of the experts' logits.

    A softmax knows its logits only up to a common number, so the backbone's logit is 0 here, and each expert brings its
    own row, relative to the backbone: composing is putting rows together, and an expert that is off leaves the others'
    proportions as they are.

    An expert must be able to start with a weight of exactly 0, and still learn. A bias of minus infinity would never
    move again, and one merely low is not the backbone. So what is learned is not a bias b but the odds themselves, up
    to a sign that does not count: exp(b) = ODDS_SCALE · |odds|, the same gates as the paper's. At 0 the weight is
    exactly 0, but its gradient is not; the first update leaves 0 on either side, and from then on the expert's layers
    have a gradient.
    """
    open_E = torch.where(odds_E < 0, -odds_E, odds_E) * ODDS_SCALE  # unlike abs, with a gradient at 0
    with torch.no_grad():  # any number may be taken from all logits; the largest keeps exp in bounds
        top_BT1 = (slopes_BTE + open_E.log()).amax(-1, keepdim=True).clamp(min=0)
    experts_BTE = open_E * (slopes_BTE - top_BT1).clamp(max=80).exp()
    backbone_BT1 = (-top_BT1).exp()
    return torch.cat([backbone_BT1, experts_BTE], -1) / (backbone_BT1 + experts_BTE.sum(-1, keepdim=True))


@dataclass(frozen=True)
class Call:
    """The active experts of a forward pass, and the gate weights of each computed block."""

    keys: tuple[str, ...]
    weights: list[Tensor] = field(default_factory=list)


_call: ContextVar[Call] = ContextVar("call")


def active_keys() -> tuple[str, ...]:
    """The active experts of the current forward pass."""
    return _call.get().keys


@contextmanager
def with_experts(keys: Sequence[str]) -> Iterator[Call]:
    call = Call(tuple(keys))
    token = _call.set(call)
    try:
        yield call
    finally:
        _call.reset(token)


BranchOutput = tuple[
    Tensor, Tensor, Tensor
]  # an expert's output [B, T, D], the linear part of its logit [B, T], its odds [1]


def place_of(layer: nn.Module) -> int:
    """The position of a layer's keys and values in a cache."""
    return next(int(one.layer_idx) for one in indexed_modules(layer))


def indexed_modules(layer: nn.Module) -> list[Any]:
    """The modules of a layer that store its position in a cache."""
    return [one for one in layer.modules() if hasattr(one, "layer_idx")]


class PartsCache(DynamicCache):
    """A cache that knows the positions of each expert's layers at its last use."""

    def __init__(self) -> None:
        super().__init__()
        self._places: dict[str, range] = {}

    def follow(self, places: Mapping[str, range], num_backbone: int) -> None:
        """Moves each expert's entries to its layers' new positions; the backbone's are the first in every model."""
        if self.layers and places != self._places:
            kept = {
                now: self.layers[before]
                for key in places.keys() & self._places.keys()
                for before, now in zip(self._places[key], places[key], strict=True)
            }
            size = max(kept, default=-1) + 1
            self.layers = self.layers[:num_backbone]
            self.layers += [kept.get(place, DynamicLayer()) for place in range(num_backbone, size)]
        self._places = dict(places)


class Branch(nn.Module):
    """An expert in one block: its layers and its row of the gate. It may be on its own device."""

    in_float32 = ("slope", "odds")

    def __init__(self, layers: Sequence[nn.Module], width: int, odds: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.slope = nn.Parameter(torch.zeros(width))
        self.odds = nn.Parameter(torch.tensor([odds]))

    def begin(self, x_BTD: Tensor, *args: Any, **kwargs: Any) -> Callable[[], BranchOutput]:
        """Starts with a block's input. Returns a function for the result, called after the backbone's layers."""
        out_BTD, slope_BT = self(x_BTD, *args, **kwargs)
        return lambda: (out_BTD, slope_BT, self.odds)

    def places(self, num_layers: int) -> range:
        """The positions in a cache of the expert's layers of all blocks; these are the first."""
        first = place_of(self.layers[0])
        return range(first, first + num_layers)

    def num_read(self, cache: Any) -> int:
        """The number of tokens of a cached text that the expert has read."""
        return int(cache.get_seq_length(place_of(self.layers[0])))

    def forward(self, x_BTD: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """The output [B, T, D] for the block's input, and the linear part of the expert's logit [B, T]."""
        device = self.slope.device
        if device != x_BTD.device:
            x_BTD, args, kwargs = _to_device(x_BTD, device), _to_device(args, device), _to_device(kwargs, device)
        return _through(self.layers, x_BTD, *args, **kwargs)[1], (x_BTD @ self.slope.to(x_BTD.dtype)).float()


class Block(nn.Module):
    """Some of the backbone's layers, and the experts in parallel to them."""

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.backbone = nn.ModuleList(layers)
        self.experts = nn.ModuleDict()

    def forward(self, x_BTD: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Computes the block like a layer of the decoder, with any further arguments of its family.

        A family whose layers give tuples gets one.
        """
        gives_tuple, y_BTD = self._merge(x_BTD, *args, **kwargs)
        return (y_BTD, None) if gives_tuple else y_BTD

    def _merge(self, x_BTD: Tensor, *args: Any, **kwargs: Any) -> tuple[bool, Tensor]:
        call = _call.get()
        active: list[Any] = [self.experts[key] for key in call.keys]
        pending = [branch.begin(x_BTD, *args, **kwargs) for branch in active]  # remote ones start early
        gives_tuple, y_BTD = _through(self.backbone, x_BTD, *args, **kwargs)
        if not pending:
            return gives_tuple, y_BTD
        outs, slopes, odds = zip(*([_to_device(part, y_BTD.device) for part in end()] for end in pending), strict=True)
        weights_BTG = gate_weights(torch.stack(slopes, -1), torch.cat(odds))
        call.weights.append(weights_BTG.detach())
        return gives_tuple, _sum([y_BTD, *outs], weights_BTG.to(y_BTD.dtype))


def _through(layers: nn.ModuleList, x_BTD: Tensor, *args: Any, **kwargs: Any) -> tuple[bool, Tensor]:
    """Whether the layers give tuples, which begin with the states, and the output [B, T, D]."""
    gives_tuple = False
    for layer in layers:
        out = layer(x_BTD, *args, **kwargs)
        gives_tuple = isinstance(out, tuple)
        x_BTD = out[0] if gives_tuple else out
    return gives_tuple, x_BTD


def _sum(parts: Sequence[Tensor], weights_BTG: Tensor) -> Tensor:
    """The weighted sum [B, T, D] of Eq. 1 as changes of the backbone: an expert with equal output changes no bit."""
    backbone_BTD, y_BTD = parts[0], parts[0]
    for weight_BT1, part_BTD in zip(weights_BTG[..., 1:].split(1, -1), parts[1:], strict=True):
        y_BTD = torch.addcmul(y_BTD, weight_BT1, part_BTD - backbone_BTD)
    return y_BTD


def _to_device(value: Any, device: torch.device) -> Any:
    """Moves tensors to a device, also within tuples and dicts; other values are unchanged."""
    if isinstance(value, Tensor):
        return value.to(device, non_blocking=device.type != "cpu")  # a CPU would read before all is there
    if isinstance(value, tuple):
        return tuple(_to_device(one, device) for one in value)
    if isinstance(value, dict):
        return {name: _to_device(one, device) for name, one in value.items()}
    return value
