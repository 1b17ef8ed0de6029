"""Makes an expert's branches beside a backbone's blocks, and assigns their positions in a cache."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from engine.errors import ModelError, first_of
from engine.methods.mode.block import Block, Branch, place_of, placed
from engine.methods.mode.config import ModeConfig
from engine.methods.mode.gate import ODDS_SCALE
from engine.models.stored_tensors import fill, without_weights


class BranchMaker:
    """Makes branches beside the blocks of a decoder; each layer gets its own position in caches."""

    def __init__(self, lm: Any, blocks: Sequence[Block]) -> None:
        self._lm, self._blocks = lm, blocks
        self._next_place = int(lm.config.num_hidden_layers)  # of the next branch's first layer

    def begin(self, config: ModeConfig) -> list[Branch]:
        """A new expert's branches, one for each block."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            return self._branches(config, self._copied if config.init == "copy" else self._fresh)

    def load(self, config: ModeConfig, state: Mapping[str, Tensor]) -> list[Branch]:
        """The branches of an expert with these tensors, with nothing random. Raises ModelError if they do not fit."""
        branches = self._branches(config, self._empty)
        _fill(branches, state)
        return branches

    def _branches(self, config: ModeConfig, made_like: Callable[[Any], nn.Module]) -> list[Branch]:
        return [self._branch(block, config, made_like) for block in self._blocks]

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


def _fill(branches: Sequence[Branch], state: Mapping[str, Tensor]) -> None:
    targets = {f"blocks.{i}.{name}": t for i, one in enumerate(branches) for name, t in one.state_dict().items()}
    if wrong := fill(targets, state):
        raise ModelError(
            f"The expert's tensors do not fit its backbone: {first_of(wrong)}.",
            "Load it on the backbone it was trained on.",
        )


def _set_place(layer: nn.Module, place: int) -> None:
    for one in placed(layer):
        one.layer_idx = place
