"""MoDE: a frozen decoder whose layers are divided into blocks, with experts of a few layers beside each (§3.1).

The surgery replaces the decoder's list of layers by its blocks, each one module in the place of several layers, so that
embeddings, masks, positions and the head stay the model's own code in every family. A block's input goes through the
backbone's layers and each active expert's, and a gate adds up what they say (Eq. 1). Which experts are active is said
per call: inactive ones are not computed and the others share their weight; no request changes the model.

An expert's keys and values follow the backbone's in the cache of the call; no two experts ever had the same position.

Shapes: B rows, T positions, D width, V vocabulary, E active experts, K blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from engine.errors import ModelError
from engine.methods.mode.block import Block, with_experts
from engine.methods.mode.branches import BranchMaker
from engine.methods.mode.config import ModeConfig
from engine.models.discovery import is_recurrent
from engine.models.expert_model import separate_texts
from engine.models.families import layout_of, max_positions
from engine.models.likelihoods import TokenScores, decoder_of, head_of, token_scores


class ModeModel(nn.Module):
    """A decoder in blocks, with experts known by keys (no dots), in the order in which they were added."""

    def __init__(self, lm: Any, num_blocks: int) -> None:
        """Divides the layers of `lm` into blocks and freezes it. Raises ModelError if that is impossible."""
        super().__init__()
        self._blocks = _divide(lm, num_blocks)
        self.lm = lm.requires_grad_(False)
        self.keys: list[str] = []
        self._shapes: dict[str, ModeConfig] = {}
        self._maker = BranchMaker(lm, self._blocks)

    @property
    def device(self) -> torch.device:
        device: torch.device = next(self.lm.parameters()).device
        return device

    @property
    def max_positions(self) -> int:
        """The longest text that the model reads at once."""
        return max_positions(self.lm.config)

    @property
    def vocab_size(self) -> int:
        return int(self.lm.config.vocab_size)

    @property
    def num_blocks(self) -> int:
        return len(self._blocks)

    def forward(
        self,
        input_ids_BT: Tensor,
        keys: Sequence[str],
        cache: Any = None,
        mask_BS: Tensor | None = None,
        *,
        position_ids_BT: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Logits [B, T, V] with the experts `keys` active, and the weights [K, 1 + E, B, T], the backbone's first.

        `cache` is a transformers Cache that is filled and used, or None. `mask_BS` is 0 where a text is filled up on
        the left, over all S positions, those in the cache included. `position_ids_BT` begin anew at 0 at each text of a
        row, and so keep these apart; not together with a cache or mask.
        """
        hidden_BTD, weights_KGBT = self.read(input_ids_BT, keys, cache, mask_BS, position_ids_BT)
        return head_of(self.lm)(hidden_BTD), weights_KGBT

    def token_scores(
        self,
        input_ids_BT: Tensor,
        targets_BT: Tensor,
        keys: Sequence[str],
        mask_BS: Tensor | None = None,
        *,
        position_ids_BT: Tensor | None = None,
    ) -> tuple[TokenScores, Tensor]:
        """Log-likelihood and hit [B, T] of each target, and the weights, as `forward` gives them.

        The logits never exist all at once.
        """
        hidden_BTD, weights_KGBT = self.read(input_ids_BT, keys, None, mask_BS, position_ids_BT)
        return token_scores(self.lm, hidden_BTD, targets_BT), weights_KGBT

    def read(
        self,
        input_ids_BT: Tensor,
        keys: Sequence[str],
        cache: Any = None,
        mask_BS: Tensor | None = None,
        position_ids_BT: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The last hidden states [B, T, D], and the weights; all else as for `forward`."""
        self._check_active(keys, cache)
        text: dict[str, Any] = {"input_ids": input_ids_BT}
        if position_ids_BT is not None:
            text = separate_texts(self.lm, input_ids_BT, position_ids_BT)
        if mask_BS is not None:
            places_BS = (mask_BS.long().cumsum(-1) - 1).clamp(min=0)
            text |= {"attention_mask": mask_BS, "position_ids": places_BS[:, -input_ids_BT.shape[1] :]}
        with with_experts(keys) as call:
            out = decoder_of(self.lm)(**text, past_key_values=cache, use_cache=cache is not None)
        if not keys:
            return out.last_hidden_state, torch.ones(self.num_blocks, 1, *input_ids_BT.shape)
        return out.last_hidden_state, torch.stack(call.weights).permute(0, 3, 1, 2)

    def places(self, keys: Sequence[str]) -> dict[str, range]:
        """The consecutive cache positions of each expert's keys and values."""
        places = {}
        for key in keys:
            places[key] = self.branches(key)[0].places(self.num_blocks * self._shapes[key].expert_layers)
        return places

    def _check_active(self, keys: Sequence[str], cache: Any) -> None:
        if len(set(keys)) < len(keys):
            raise ModelError(f"{', '.join(keys)} names an expert twice.", "Name each once.")
        for key in keys:
            self._require(key)
            first: Any = self._blocks[0].experts[key]
            if cache is not None and first.num_read(cache) != cache.get_seq_length():
                raise ModelError(
                    f"The expert “{key}” was inactive when this text started.",
                    "Start the text again with this expert.",
                )

    def add_expert(self, key: str, config: ModeConfig, state: Mapping[str, Tensor] | None = None) -> None:
        """Adds an expert that starts as `config` says, or has these tensors. No other tensor is touched (law L8)."""
        self._require_addable(key, config)
        branches = self._maker.begin(config) if state is None else self._maker.load(config, state)
        self._put(key, config, [branch.train(self.training) for branch in branches])

    def put_expert(self, key: str, config: ModeConfig, branches: Sequence[nn.Module]) -> None:
        """Adds an expert whose branches, one for each block, are made already."""
        self._require_addable(key, config)
        self._put(key, config, branches)

    def _put(self, key: str, config: ModeConfig, branches: Sequence[nn.Module]) -> None:
        for block, branch in zip(self._blocks, branches, strict=True):
            block.experts[key] = branch
        self.keys.append(key)
        self._shapes[key] = config

    def _require_addable(self, key: str, config: ModeConfig) -> None:
        if key in self.keys:
            raise ModelError(f"The expert “{key}” is in this model already.", "Use another key.")
        if config.num_blocks != self.num_blocks:
            raise ModelError(
                f"The expert has {config.num_blocks} blocks, the model {self.num_blocks}.",
                "Use experts with the same number of blocks.",
            )

    def remove_expert(self, key: str) -> None:
        """Removes an expert; the others do not change."""
        self._require(key)
        for block in self._blocks:
            del block.experts[key]
        self.keys.remove(key)
        del self._shapes[key]

    def place_expert(self, key: str, device: torch.device | str) -> None:
        """Moves an expert to its own device (MPMD, §3.3); outputs are merged on the backbone's device."""
        for branch in self.branches(key):
            branch.to(device)

    def branches(self, key: str) -> list[Any]:
        """An expert's part of each block."""
        self._require(key)
        return [block.experts[key] for block in self._blocks]

    def free_backbone(self) -> None:
        """Frees the backbone's memory in a process that only computes experts; these can still be saved."""
        experts = {id(one) for key in self.keys for one in self.expert_parameters(key).values()}
        for module in self.lm.modules():
            for name, parameter in module.named_parameters(recurse=False):
                if id(parameter) not in experts:
                    setattr(module, name, nn.Parameter(torch.empty_like(parameter, device="meta"), requires_grad=False))

    def shape_of(self, key: str) -> ModeConfig:
        """The config that the expert was made with."""
        self._require(key)
        return self._shapes[key]

    def expert_state(self, key: str) -> dict[str, Tensor]:
        """An expert's tensors, those of its gates included, by block."""
        self._require(key)
        return {
            f"blocks.{number}.{name}": tensor
            for number, block in enumerate(self._blocks)
            for name, tensor in block.experts[key].state_dict().items()
        }

    def expert_parameters(self, key: str) -> dict[str, nn.Parameter]:
        """The trainable view of `expert_state`, named by expert, too."""
        self._require(key)
        return {
            f"{key}:blocks.{number}.{name}": parameter
            for number, block in enumerate(self._blocks)
            for name, parameter in block.experts[key].named_parameters()
        }

    def gate_parameters(self, key: str) -> dict[str, nn.Parameter]:
        """The parameters of an expert's gate rows."""
        return {name: one for name, one in self.expert_parameters(key).items() if ".layers." not in name}

    def num_added(self, key: str) -> int:
        """The number of parameters that an expert added, its gates' included."""
        return sum(parameter.numel() for parameter in self.expert_parameters(key).values())

    def _require(self, key: str) -> None:
        if key not in self.keys:
            held = ", ".join(self.keys) or "none"
            raise ModelError(f"There is no expert “{key}” in this model.", f"It holds: {held}.")


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
