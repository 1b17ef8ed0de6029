"""Makes an expert's branches next to a backbone's blocks, and assigns their positions in a cache."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from engine.methods.mode.block import Block, Branch, place_of, placed
from engine.methods.mode.config import ModeConfig
from engine.methods.mode.gate import ODDS_SCALE
from engine.models.stored_tensors import without_weights


class BranchMaker:
    """Makes branches next to the blocks of a decoder; each layer gets its own position in caches."""

    def __init__(self, lm: Any, blocks: Sequence[Block]) -> None:
        self._lm, self._blocks = lm, blocks
        self._next_place = int(lm.config.num_hidden_layers)  # of the next branch's first layer

    def make(self, config: ModeConfig, *, is_empty: bool) -> list[Branch]:
        """A new expert's branches, one for each block; with uninitialized weights where `is_empty`."""
        like = self._empty if is_empty else self._copied if config.init == "copy" else self._fresh
        return [self._branch(block, config, like) for block in self._blocks]

    def _branch(self, block: Block, config: ModeConfig, made_like: Callable[[Any], nn.Module]) -> Branch:
        """Layers like the block's last ones, repeated if the expert has more: copies, fresh or empty ones.

        A copy of the full block gives the block's output at any weight. At weight 0 it would never learn, since neither
        its weight nor its layers would have a gradient. So it starts with a weight, and the model still equals the
        backbone.
        """
        size = config.expert_layers
        sources: list[Any] = [block.backbone[(number - size) % len(block.backbone)] for number in range(size)]
        is_twin = config.init == "copy" and size == len(block.backbone)
        odds = 1 / ODDS_SCALE if config.start == "even" or is_twin else 0.0
        layers = [made_like(source) for source in sources]
        device = next(self._lm.parameters()).device
        branch = Branch(layers, int(self._lm.config.hidden_size), odds).to(device).requires_grad_(True)
        for layer in layers:
            _set_place(layer, self._next_place)
            self._next_place += 1
        return branch

    def _copied(self, layer: Any) -> Any:
        """A copy with weights of its own, under the same configuration, so that one setting reaches all layers."""
        return copy.deepcopy(layer, {id(self._lm.config): self._lm.config})

    def _empty(self, like: Any) -> Any:
        """A copy with uninitialized weights."""
        return copy.deepcopy(like, {id(self._lm.config): self._lm.config, **without_weights(like)})

    def _fresh(self, like: Any) -> nn.Module:
        """A new layer of the same class, with the family's random initialization."""
        if [*inspect.signature(type(like)).parameters][:2] == ["config", "layer_idx"]:
            layer: nn.Module = type(like)(self._lm.config, place_of(like))
        else:
            layer = self._copied(like)
        return layer.apply(self._lm._init_weights).to(next(like.parameters()).dtype)


def _set_place(layer: nn.Module, place: int) -> None:
    for one in placed(layer):
        one.layer_idx = place
