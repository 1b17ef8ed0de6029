"""How an expert's branches are made beside a backbone's blocks, and where their keys and values lie in a cache."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from engine.errors import ModelError
from engine.methods.mode.block import Block, Branch
from engine.methods.mode.config import ModeConfig
from engine.methods.mode.gate import ODDS_SCALE


class BranchMaker:
    """Makes branches beside the blocks of a decoder; no two of their layers ever get the same place in caches."""

    def __init__(self, lm: Any, blocks: Sequence[Block]) -> None:
        self._lm, self._blocks = lm, blocks
        self._next_place = int(lm.config.num_hidden_layers)  # of the next branch's first layer

    def begin(self, config: ModeConfig) -> list[Branch]:
        """A new expert's branches, one for each block."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            return self._branches(config, self._copied if config.init == "copy" else self._fresh)

    def load(self, config: ModeConfig, state: Mapping[str, Tensor]) -> list[Branch]:
        """Those of an expert with these tensors; raises ModelError where they do not fit. Draws nothing at random."""
        branches = self._branches(config, self._empty)
        _fill(branches, state)
        return branches

    def _branches(self, config: ModeConfig, made_like: Callable[[Any], nn.Module]) -> list[Branch]:
        return [self._branch(block, config, made_like) for block in self._blocks]

    def _branch(self, block: Block, config: ModeConfig, made_like: Callable[[Any], nn.Module]) -> Branch:
        """Layers like the block's last ones, in turn where the expert has more: copies, fresh ones or empty ones.

        A copy of the whole block says what the block says at any weight. Closed it would never learn, since neither its
        weight nor its layers would have a gradient, so it starts open, and the model is the backbone all the same.
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
        """A copy whose weights are still to be filled in."""
        weights = {id(one): nn.Parameter(torch.empty_like(one)) for one in like.parameters()}
        return copy.deepcopy(like, {id(self._lm.config): self._lm.config, **weights})

    def _fresh(self, like: Any) -> nn.Module:
        """A layer of the same kind as the family makes them, at random."""
        layer: nn.Module = type(like)(self._lm.config, place_of(like))
        return layer.apply(self._lm._init_weights).to(next(like.parameters()).dtype)


def _fill(branches: Sequence[Branch], state: Mapping[str, Tensor]) -> None:
    expected = {f"blocks.{i}.{name}": t for i, one in enumerate(branches) for name, t in one.state_dict().items()}
    wrong = sorted(set(expected) ^ set(state)) or sorted(n for n, t in expected.items() if state[n].shape != t.shape)
    if wrong:
        raise ModelError(
            f"An expert's tensors must fit its backbone, but {wrong[0]} (and {len(wrong) - 1} more) do not.",
            "Load it on the backbone it was trained on.",
        )
    with torch.no_grad():
        for name, tensor in expected.items():
            tensor.copy_(state[name])


def place_of(layer: nn.Module) -> int:
    """Where a layer's keys and values lie in a cache."""
    return next(int(one.layer_idx) for one in _placed(layer))


def _set_place(layer: nn.Module, place: int) -> None:
    for one in _placed(layer):
        one.layer_idx = place


def _placed(layer: nn.Module) -> list[Any]:
    """Those of a layer's modules that know its place in a cache."""
    return [one for one in layer.modules() if hasattr(one, "layer_idx")]
