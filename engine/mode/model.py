"""MoDE: a frozen decoder whose layers are divided into blocks, with experts of a few layers beside each (§3.1).

The surgery replaces the decoder's list of layers by its blocks, each one module in the place of several layers, so that
embeddings, masks, positions and the head stay the model's own code in every family. A block's input goes through the
backbone's layers and each active expert's, and a gate adds up what they say (Eq. 1). Which experts are active is said
per call: those that are off are not computed and the rest share their weight; no request leaves a trace in the model.

An expert's keys and values lie in the cache of the call, behind the backbone's; no two experts ever had the same place.

Shapes: B rows, T positions, D width, V vocabulary, E active experts, K blocks.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from engine.errors import ModelError
from engine.mode.block import Block, Branch, with_experts
from engine.mode.config import ModeConfig
from engine.mode.gate import OPENING
from engine.models.families import layout_of, max_positions
from engine.models.likelihoods import TokenScores, token_scores


class ModeModel(nn.Module):
    """A decoder in blocks, with experts known by keys (no dots); their order is that of their coming."""

    def __init__(self, lm: Any, num_blocks: int) -> None:
        """Divides the layers of `lm` and freezes it. Raises ModelError when they cannot be divided so."""
        super().__init__()
        self._blocks = _divide(lm, num_blocks)
        self.lm = lm.requires_grad_(False)
        self.keys: list[str] = []
        self._shapes: dict[str, ModeConfig] = {}
        self._next_place = int(lm.config.num_hidden_layers)  # in caches, of the next expert's first layer

    @property
    def device(self) -> torch.device:
        device: torch.device = next(self.lm.parameters()).device
        return device

    @property
    def max_positions(self) -> int:
        """The longest text that the model reads at once."""
        return max_positions(self.lm)

    @property
    def vocab_size(self) -> int:
        return int(self.lm.config.vocab_size)

    @property
    def num_blocks(self) -> int:
        return len(self._blocks)

    def forward(
        self, input_ids_BT: Tensor, keys: Sequence[str], cache: Any = None, mask_BS: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Logits [B, T, V] with the experts `keys` active, and the weights [K, 1 + E, B, T], the backbone's first.

        `cache` is a transformers Cache that is filled and used, or None. `mask_BS` is 0 where a text is filled up on
        the left, over all S positions, those in the cache included.
        """
        hidden_BTD, weights_KGBT = self._read(input_ids_BT, keys, cache, mask_BS)
        return self.lm.get_output_embeddings()(hidden_BTD), weights_KGBT

    def token_scores(
        self, input_ids_BT: Tensor, targets_BT: Tensor, keys: Sequence[str], mask_BS: Tensor | None = None
    ) -> tuple[TokenScores, Tensor]:
        """Log-likelihood and hit [B, T] of each target, and the weights, as `forward` gives them.

        The logits never exist all at once.
        """
        hidden_BTD, weights_KGBT = self._read(input_ids_BT, keys, None, mask_BS)
        return token_scores(self.lm, hidden_BTD, targets_BT), weights_KGBT

    def _read(
        self, input_ids_BT: Tensor, keys: Sequence[str], cache: Any, mask_BS: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        self._check_active(keys, cache)
        text: dict[str, Any] = {"input_ids": input_ids_BT}
        if mask_BS is not None:
            places_BS = (mask_BS.long().cumsum(-1) - 1).clamp(min=0)
            text |= {"attention_mask": mask_BS, "position_ids": places_BS[:, -input_ids_BT.shape[1] :]}
        with with_experts(keys) as call:
            out = self.lm.base_model(**text, past_key_values=cache, use_cache=cache is not None)
        if not keys:
            return out.last_hidden_state, torch.ones(self.num_blocks, 1, *input_ids_BT.shape)
        return out.last_hidden_state, torch.stack(call.weights).permute(0, 3, 1, 2)

    def places(self, keys: Sequence[str]) -> dict[str, range]:
        """Where the keys and values of experts lie in a cache, those of an expert one behind the other."""
        found = {}
        for key in keys:
            first = _place(self.branches(key)[0].layers[0])
            found[key] = range(first, first + self.num_blocks * self._shapes[key].expert_layers)
        return found

    def _check_active(self, keys: Sequence[str], cache: Any) -> None:
        if len(set(keys)) < len(keys):
            raise ModelError(f"An expert can be active once, but {', '.join(keys)} repeats one.", "Name each once.")
        for key in keys:
            self._require(key)
            first: Any = self._blocks[0].experts[key]
            if cache is not None and cache.get_seq_length(_place(first.layers[0])) != cache.get_seq_length():
                raise ModelError(
                    f"The expert “{key}” must have read a text from its beginning, but was off at first.",
                    "Start the text again with this expert.",
                )

    def add_expert(self, key: str, config: ModeConfig, state: Mapping[str, Tensor] | None = None) -> None:
        """Adds an expert that starts as `config` says, or has these tensors. No other tensor is touched (law L8)."""
        self._require_room(key, config)
        if state is None:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(config.seed)
                branches = [self._new_branch(block, config, self._start_of(config)) for block in self._blocks]
        else:  # draws nothing: others may be drawing at this moment
            branches = [self._new_branch(block, config, self._empty) for block in self._blocks]
            _load(branches, state)
        self._put(key, config, branches)

    def put_expert(self, key: str, config: ModeConfig, branches: Sequence[nn.Module]) -> None:
        """Adds an expert whose branches, one for each block, are made already."""
        self._require_room(key, config)
        self._put(key, config, branches)

    def _put(self, key: str, config: ModeConfig, branches: Sequence[nn.Module]) -> None:
        for block, branch in zip(self._blocks, branches, strict=True):
            block.experts[key] = branch
        self.keys.append(key)
        self._shapes[key] = config

    def _require_room(self, key: str, config: ModeConfig) -> None:
        if key in self.keys:
            raise ModelError(f"The expert “{key}” is in this model already.", "Use another key.")
        if config.num_blocks != self.num_blocks:
            raise ModelError(
                f"An expert must have as many blocks as the model, {self.num_blocks}, but has {config.num_blocks}.",
                "Put experts of the same number of blocks together.",
            )

    def _new_branch(self, block: Block, config: ModeConfig, made_like: Callable[[Any], nn.Module]) -> Branch:
        """Layers like the block's last ones, in turn where the expert has more: copies, fresh ones or empty ones.

        A copy of the whole block says what the block says at any weight. Closed it would never learn, since neither its
        weight nor its layers would have a gradient, so it starts open, and the model is the backbone all the same.
        """
        size = config.expert_layers
        sources: list[Any] = [block.backbone[(number - size) % len(block.backbone)] for number in range(size)]
        is_twin = config.init == "copy" and size == len(block.backbone)
        odds = 1 / OPENING if config.start == "even" or is_twin else 0.0
        layers = [made_like(source) for source in sources]
        branch = Branch(layers, int(self.lm.config.hidden_size), odds).to(self.device).requires_grad_(True)
        for layer in layers:
            _set_place(layer, self._next_place)
            self._next_place += 1
        return branch.train(self.training)

    def _start_of(self, config: ModeConfig) -> Callable[[Any], nn.Module]:
        return self._copied if config.init == "copy" else self._fresh

    def _copied(self, layer: Any) -> Any:
        """A copy with weights of its own, under the same configuration, so that one setting reaches all layers."""
        return copy.deepcopy(layer, {id(self.lm.config): self.lm.config})

    def _empty(self, like: Any) -> Any:
        """A copy whose weights are still to be filled in."""
        weights = {id(one): nn.Parameter(torch.empty_like(one)) for one in like.parameters()}
        return copy.deepcopy(like, {id(self.lm.config): self.lm.config, **weights})

    def _fresh(self, like: Any) -> nn.Module:
        """A layer of the same kind as the family makes them, at random."""
        layer: nn.Module = type(like)(self.lm.config, _place(like))
        return layer.apply(self.lm._init_weights).to(next(like.parameters()).dtype)

    def remove_expert(self, key: str) -> None:
        """Takes an expert out; the others stay as they are."""
        self._require(key)
        for block in self._blocks:
            del block.experts[key]
        self.keys.remove(key)
        del self._shapes[key]

    def place_expert(self, key: str, device: torch.device | str) -> None:
        """Moves an expert to a device of its own (MPMD, §3.3): it computes there and meets the others at the merges."""
        for branch in self.branches(key):
            branch.to(device)

    def branches(self, key: str) -> list[Any]:
        """An expert's part of each block."""
        self._require(key)
        return [block.experts[key] for block in self._blocks]

    def forget_backbone(self) -> None:
        """Frees the backbone's memory where experts alone are to work; they stay what they are, and may be saved."""
        experts = {id(one) for key in self.keys for one in self.expert_parameters(key).values()}
        for module in self.lm.modules():
            for name, parameter in module.named_parameters(recurse=False):
                if id(parameter) not in experts:
                    setattr(module, name, nn.Parameter(torch.empty_like(parameter, device="meta"), requires_grad=False))

    def shape_of(self, key: str) -> ModeConfig:
        """What the expert was made with."""
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
        """Those of its parameters that say how much it weighs."""
        return {name: one for name, one in self.expert_parameters(key).items() if ".layers." not in name}

    def num_added(self, key: str) -> int:
        """How many parameters an expert added, its gates' included."""
        return sum(parameter.numel() for parameter in self.expert_parameters(key).values())

    def _require(self, key: str) -> None:
        if key not in self.keys:
            held = ", ".join(self.keys) or "none"
            raise ModelError(f"There is no expert “{key}” in this model.", f"It holds: {held}.")


def _divide(lm: Any, num_blocks: int) -> list[Block]:
    """Puts blocks in the place of the decoder's layers; the first take one more where they do not come out even."""
    path = layout_of(lm).layers
    layers: list[nn.Module] = list(lm.get_submodule(path))
    if not 1 <= num_blocks <= len(layers):
        raise ModelError(
            f"num_blocks must be 1 to the backbone's {len(layers)} layers, but is {num_blocks} instead.",
            "Choose fewer blocks.",
        )
    if len(set(getattr(lm.config, "layer_types", None) or [""])) > 1:
        raise ModelError(
            "The backbone's layers must all attend alike, but some attend to a window and others to all.",
            "Choose a backbone whose layers are of one kind.",
        )
    small, more = divmod(len(layers), num_blocks)
    sizes = [small + (number < more) for number in range(num_blocks)]
    blocks = [Block([layers.pop(0) for _ in range(size)]) for size in sizes]
    holder_path, _, attribute = path.rpartition(".")
    setattr(lm.get_submodule(holder_path), attribute, nn.ModuleList(blocks))
    return blocks


def _load(branches: Sequence[Branch], state: Mapping[str, Tensor]) -> None:
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


def _place(layer: nn.Module) -> int:
    """Where a layer's keys and values lie in a cache."""
    return next(int(one.layer_idx) for one in _placed(layer))


def _set_place(layer: nn.Module, place: int) -> None:
    for one in _placed(layer):
        one.layer_idx = place


def _placed(layer: nn.Module) -> list[Any]:
    """Those of a layer's modules that know its place in a cache."""
    return [one for one in layer.modules() if hasattr(one, "layer_idx")]
