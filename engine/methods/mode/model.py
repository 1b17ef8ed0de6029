"""MoDE: a frozen decoder whose layers are divided into blocks, with experts of a few layers next to each (§3.1).

The surgery replaces the decoder's list of layers by its blocks, each one module in the place of several layers, so that
embeddings, masks, positions and the head stay the model's own code in every family. A block's input goes through the
backbone's layers and each active expert's, and a gate adds up what they say (Eq. 1). Which experts are active is said
per call: inactive ones are not computed and the others share their weight; no request changes the model.

An expert's keys and values follow the backbone's in the cache of the call; no two experts ever had the same position.

Shapes: B rows, T positions, D width, V vocabulary, E active experts, K blocks.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from engine.errors import ModelError
from engine.methods.mode.block import ODDS_SCALE, Block, Branch, PartsCache, indexed_modules, place_of, with_experts
from engine.methods.mode.config import ModeConfig
from engine.methods.parts.parts_model import PartsModel
from engine.models.discovery import is_recurrent
from engine.models.families import layout_of
from engine.models.likelihoods import decoder_of
from engine.models.stored_tensors import without_weights


class ModeModel(PartsModel):
    """A decoder in blocks, with experts known by keys (no dots), in the order in which they were added."""

    method_name = "mode"
    gate_names = ("slope", "odds")

    def __init__(self, lm: Any, num_blocks: int) -> None:
        """Divides the layers of `lm` into blocks and freezes it. Raises ModelError if that is impossible."""
        blocks = _divide(lm, num_blocks)
        super().__init__(lm)
        self._blocks = blocks
        self._next_place = int(lm.config.num_hidden_layers)  # in a cache, of the next expert's first layer

    @property
    def num_blocks(self) -> int:
        return len(self._blocks)

    def read(
        self,
        input_ids_BT: Tensor,
        keys: Sequence[str],
        cache: Any = None,
        mask_BS: Tensor | None = None,
        position_ids_BT: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        self._check_active(keys, cache)
        text = self.decoder_inputs(input_ids_BT, mask_BS, position_ids_BT)
        with with_experts(keys) as call:
            out = decoder_of(self.lm)(**text, past_key_values=cache, use_cache=cache is not None)
        if not keys:
            return out.last_hidden_state, torch.ones(self.num_blocks, 1, *input_ids_BT.shape)
        return out.last_hidden_state, torch.stack(call.weights).permute(0, 3, 1, 2)

    def new_modules(self, config: ModeConfig, *, is_empty: bool) -> dict[str, nn.Module]:
        like = self._copy_shape if is_empty else self._copy if config.init == "copy" else self._fresh_layer
        return _by_block([self._new_branch(block, config, like) for block in self._blocks])

    def _new_branch(self, block: Block, config: ModeConfig, new_layer: Callable[[Any], nn.Module]) -> Branch:
        """Layers like the block's last ones, repeated if the expert has more: copies, fresh or empty ones.

        A copy of the full block gives the block's output at any weight. At weight 0 it would never learn, since neither
        its weight nor its layers would have a gradient. So it starts with a weight, and the model still equals the
        backbone.
        """
        size = config.expert_layers
        sources: list[Any] = [block.backbone[(number - size) % len(block.backbone)] for number in range(size)]
        is_twin = config.init == "copy" and size == len(block.backbone)
        odds = 1 / ODDS_SCALE if config.start == "even" or is_twin else 0.0
        layers = [new_layer(source) for source in sources]
        branch = Branch(layers, int(self.lm.config.hidden_size), odds).to(self.device).requires_grad_(True)
        for layer in layers:
            for module in indexed_modules(layer):
                module.layer_idx = self._next_place
            self._next_place += 1
        return branch

    def _copy(self, layer: Any) -> Any:
        """A copy with weights of its own, under the same configuration, so that one setting reaches all layers."""
        return copy.deepcopy(layer, {id(self.lm.config): self.lm.config})

    def _copy_shape(self, layer: Any) -> Any:
        """A copy with uninitialized weights."""
        return copy.deepcopy(layer, {id(self.lm.config): self.lm.config, **without_weights(layer)})

    def _fresh_layer(self, like: Any) -> nn.Module:
        """A new layer of the same class, with the family's random initialization."""
        if [*inspect.signature(type(like)).parameters][:2] == ["config", "layer_idx"]:
            layer: nn.Module = type(like)(self.lm.config, place_of(like))
        else:
            layer = self._copy(like)
        return layer.apply(self.lm._init_weights).to(next(like.parameters()).dtype)

    def new_cache(self) -> PartsCache:
        return PartsCache()

    def places(self, keys: Sequence[str]) -> dict[str, range]:
        """The consecutive cache positions of each expert's keys and values."""
        places = {}
        for key in keys:
            places[key] = self.branches(key)[0].places(self.num_blocks * self.shape_of(key).expert_layers)
        return places

    def _check_active(self, keys: Sequence[str], cache: Any) -> None:
        if isinstance(cache, PartsCache):
            cache.follow(self.places(keys), int(self.lm.config.num_hidden_layers))
        if len(set(keys)) < len(keys):
            raise ModelError(f"{', '.join(keys)} names an expert twice.", "Name each once.")
        for key in keys:
            self.require(key)
            first: Any = self._blocks[0].experts[key]
            if cache is not None and first.num_read(cache) != cache.get_seq_length():
                raise ModelError(
                    f"The expert “{key}” was inactive when this text started.",
                    "Start the text again with this expert.",
                )

    def require_addable(self, key: str, config: ModeConfig) -> None:
        super().require_addable(key, config)
        if config.num_blocks != self.num_blocks:
            raise ModelError(
                f"The expert has {config.num_blocks} blocks, the model {self.num_blocks}.",
                "Use experts with the same number of blocks.",
            )

    def _put(self, key: str, modules: Mapping[str, nn.Module]) -> None:
        for block, branch in zip(self._blocks, modules.values(), strict=True):
            block.experts[key] = branch

    def _drop(self, key: str) -> None:
        for block in self._blocks:
            del block.experts[key]

    def modules_of(self, key: str) -> dict[str, nn.Module]:
        return _by_block(self.branches(key))

    def place_expert(self, key: str, device: torch.device | str) -> None:
        """Moves an expert to its own device (MPMD, §3.3); outputs are merged on the backbone's device."""
        for branch in self.branches(key):
            branch.to(device)

    def branches(self, key: str) -> list[Any]:
        """An expert's part of each block."""
        self.require(key)
        return [block.experts[key] for block in self._blocks]

    def free_backbone(self) -> None:
        """Frees the backbone's memory in a process that only computes experts; these can still be saved."""
        experts = {id(one) for key in self.keys for one in self.expert_parameters(key).values()}
        for module in self.lm.modules():
            for name, parameter in module.named_parameters(recurse=False):
                if id(parameter) not in experts:
                    setattr(module, name, nn.Parameter(torch.empty_like(parameter, device="meta"), requires_grad=False))


def _by_block(branches: Sequence[nn.Module]) -> dict[str, nn.Module]:
    return {f"blocks.{number}": branch for number, branch in enumerate(branches)}


def _require_alike(lm: Any, layers: list[nn.Module]) -> None:
    """Raises ModelError for layers that differ, or that keep a state for which an expert's cache has no place."""
    if len({type(layer) for layer in layers}) > 1 or not layout_of(lm).is_uniform:
        raise ModelError("The backbone has layers of several kinds.", "Choose a backbone whose layers are of one kind.")
    if is_recurrent(layers[0]) or not any(hasattr(one, "layer_idx") for one in layers[0].modules()):
        raise ModelError(
            "The backbone's layers do not keep keys and values under a number.",
            "Choose a backbone whose layers are of attention.",
        )


def _divide(lm: Any, num_blocks: int) -> list[Block]:
    """Replaces the decoder's layers by blocks; the first blocks take one more layer if the division has a remainder."""
    path = layout_of(lm).layers
    layers: list[nn.Module] = list(lm.get_submodule(path))
    if not 1 <= num_blocks <= len(layers):
        raise ModelError(
            f"num_blocks must be 1 to {len(layers)}, the backbone's number of layers, not {num_blocks}.",
            "Choose fewer blocks.",
        )
    _require_alike(lm, layers)
    if len(set(getattr(lm.config, "layer_types", None) or [""])) > 1:
        raise ModelError(
            "The backbone mixes layers with sliding-window and full attention.",
            "Choose a backbone whose layers are of one kind.",
        )
    small, more = divmod(len(layers), num_blocks)
    sizes = [small + (number < more) for number in range(num_blocks)]
    blocks = [Block([layers.pop(0) for _ in range(size)]) for size in sizes]
    holder_path, _, attribute = path.rpartition(".")
    setattr(lm.get_submodule(holder_path), attribute, nn.ModuleList(blocks))
    return blocks
