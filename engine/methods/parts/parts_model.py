"""Models with parts: a frozen decoder, and the parts of experts with their gates next to it; and views of the active.

A method with a model of its own subclasses it. Which parts are active is said per call: inactive ones are not computed,
and no request changes the model.

Shapes: B rows, T positions, S cached and new positions, D width, V vocabulary, K blocks, E active parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache

from engine.errors import ModelError, first_of
from engine.methods.parts.method import Learning, get_parts_method
from engine.models.expert_model import PartWeights, TrainableModel, separate_texts
from engine.models.families import max_positions
from engine.models.flops import Shape
from engine.models.likelihoods import head_of
from engine.models.rows import Rows
from engine.models.stored_tensors import fill


class PartsModel(nn.Module):
    """A decoder with parts known by keys (no dots), in the order in which they were added.

    A subclass gives `read` and `new_modules`.
    """

    method_name: str  # in the cards of its experts
    gate_names: tuple[str, ...] = ()  # the last names of the parameters of gates

    def __init__(self, lm: Any) -> None:
        super().__init__()
        self.lm = lm.requires_grad_(False)
        self.keys: list[str] = []
        self.parts = nn.ModuleDict()
        self._shapes: dict[str, Any] = {}

    def read(
        self,
        input_ids_BT: Tensor,
        keys: Sequence[str],
        cache: Any = None,
        mask_BS: Tensor | None = None,
        position_ids_BT: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The last hidden states [B, T, D] with the parts `keys` active, and the weights [K, 1 + E, B, T].

        The backbone's weights come first. `cache` is one of `new_cache` or of transformers, filled and used, or None.
        `mask_BS` is 0 where a text is filled up on the left, over all S positions, those in the cache included.
        `position_ids_BT` start again at 0 at each text of a row, and so keep these apart; not with a cache or mask.
        """
        raise NotImplementedError

    def new_modules(self, config: Any, *, is_empty: bool) -> Mapping[str, nn.Module]:
        """The trainable modules of a new part by name; with tensors of any content where `is_empty`."""
        raise NotImplementedError

    def decoder_inputs(
        self, input_ids_BT: Tensor, mask_BS: Tensor | None, position_ids_BT: Tensor | None
    ) -> dict[str, Any]:
        """The arguments of `read` as the decoder takes them."""
        if position_ids_BT is not None:
            return separate_texts(self.lm, input_ids_BT, position_ids_BT)
        if mask_BS is None:
            return {"input_ids": input_ids_BT}
        places_BS = (mask_BS.long().cumsum(-1) - 1).clamp(min=0)
        own_BT = places_BS[:, -input_ids_BT.shape[1] :]
        return {"input_ids": input_ids_BT, "attention_mask": mask_BS, "position_ids": own_BT}

    def new_cache(self) -> Any:
        """An empty cache for the keys and values of a text."""
        return DynamicCache()

    @property
    def device(self) -> torch.device:
        device: torch.device = next(self.lm.parameters()).device
        return device

    def forward(
        self,
        input_ids_BT: Tensor,
        keys: Sequence[str],
        cache: Any = None,
        mask_BS: Tensor | None = None,
        *,
        position_ids_BT: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Logits [B, T, V], and the weights; all else as for `read`."""
        hidden_BTD, weights_KGBT = self.read(input_ids_BT, keys, cache, mask_BS, position_ids_BT)
        return head_of(self.lm)(hidden_BTD), weights_KGBT

    def add_expert(self, key: str, config: Any, state: Mapping[str, Tensor] | None = None) -> None:
        """Adds a part that starts as `config` says, or has these tensors. No other tensor is touched (law L8)."""
        self.require_addable(key, config)
        with torch.random.fork_rng(devices=[]):
            if state is None:
                torch.manual_seed(config.seed)
            modules = self.new_modules(config, is_empty=state is not None)
        if state is not None and (wrong := fill(_tensors(modules), state)):
            raise ModelError(
                f"The expert's tensors do not fit its backbone: {first_of(wrong)}.",
                "Load it on the backbone it was trained on.",
            )
        self.put_expert(key, config, {name: module.train(self.training) for name, module in modules.items()})

    def put_expert(self, key: str, config: Any, modules: Mapping[str, nn.Module]) -> None:
        """Adds a part whose modules exist already."""
        self.require_addable(key, config)
        self._put(key, modules)
        self.keys.append(key)
        self._shapes[key] = config

    def require_addable(self, key: str, config: Any) -> None:
        """Raises ModelError where the key is taken, or the config does not fit the model."""
        del config
        if key in self.keys:
            raise ModelError(f"The expert “{key}” is in this model already.", "Use another key.")

    def _put(self, key: str, modules: Mapping[str, nn.Module]) -> None:
        self.parts[key] = nn.ModuleDict(dict(modules))

    def remove_expert(self, key: str) -> None:
        """Removes a part; the others do not change."""
        self.require(key)
        self._drop(key)
        self.keys.remove(key)
        del self._shapes[key]

    def _drop(self, key: str) -> None:
        del self.parts[key]

    def modules_of(self, key: str) -> Mapping[str, nn.Module]:
        """The modules of a part by name."""
        modules: Any = self.parts[key]
        return dict(modules)

    def shape_of(self, key: str) -> Any:
        """The config that the part was made with."""
        self.require(key)
        return self._shapes[key]

    def expert_state(self, key: str) -> dict[str, Tensor]:
        """A part's tensors, those of its gates included."""
        self.require(key)
        return _tensors(self.modules_of(key))

    def expert_parameters(self, key: str) -> dict[str, nn.Parameter]:
        """The trainable view of `expert_state`; the names begin with the key."""
        self.require(key)
        return {
            f"{key}:{place}.{name}": parameter
            for place, module in self.modules_of(key).items()
            for name, parameter in module.named_parameters()
        }

    def gate_parameters(self, key: str) -> dict[str, nn.Parameter]:
        """The parameters of a part's gates."""
        every = self.expert_parameters(key)
        return {name: one for name, one in every.items() if name.rpartition(".")[2] in self.gate_names}

    def num_added(self, key: str) -> int:
        """The number of parameters that a part added, its gates' included."""
        return sum(parameter.numel() for parameter in self.expert_parameters(key).values())

    def require(self, key: str) -> None:
        """Raises ModelError where there is no such part."""
        if key not in self.keys:
            held = ", ".join(self.keys) or "none"
            raise ModelError(f"There is no expert “{key}” in this model.", f"It holds: {held}.")


def _tensors(modules: Mapping[str, nn.Module]) -> dict[str, Tensor]:
    return {f"{place}.{name}": tensor for place, one in modules.items() for name, tensor in one.state_dict().items()}


class GateShares:
    """The mean gate weights of the backbone and each active expert, collected over forward passes of any thread."""

    def __init__(self) -> None:
        self._passes: list[tuple[list[float], int]] = []

    def add(self, weights_KGBT: Tensor) -> None:
        """Adds the weights of one forward pass."""
        sums_G = weights_KGBT.double().mean(0).sum((1, 2))
        self._passes.append((sums_G.tolist(), weights_KGBT[0, 0].numel()))

    def means(self) -> tuple[float, ...]:
        """The backbone's mean, then each expert's, over all tokens and blocks; bit-identical in any order."""
        sums, counts = zip(*self._passes, strict=True)
        return tuple(math.fsum(of_one) / sum(counts) for of_one in zip(*sums, strict=True))


class ActiveParts(TrainableModel):
    """Some experts of a model, known together as `name`; an empty set is only the backbone.

    `weights` [K, 1 + E, B, T] are those of the last forward pass, the backbone's first. Use one object per text or per
    training.
    """

    def __init__(
        self,
        model: PartsModel,
        active: Sequence[str],
        name: str,
        learning: Learning = "experts",
        names: Sequence[str] | None = None,
    ) -> None:
        """`names` label the active experts in `part_weights`; by default their keys."""
        super().__init__()
        self.model = model
        self.active = tuple(active)
        self.names = tuple(names or active)
        self.keys = [name]
        self.max_positions = max_positions(model.lm.config)
        self.learning: Learning = learning
        self.weights: Tensor | None = None
        self._recorder: GateShares | None = None

    def train(self, mode: bool = True) -> ActiveParts:
        """Puts only the trained modules in training mode, so that frozen ones use no dropout.

        An expert is then trained next to the backbone, and gates among the experts, as they are at inference.
        """
        super().train(False)
        for key in self.active if mode and self.learning == "experts" else ():
            for module in self.model.modules_of(key).values():
                module.train()
        self.training = mode
        return self

    @property
    def lm(self) -> Any:
        return self.model.lm

    def forward(
        self, input_ids_BT: Tensor, rows: Rows, cache: Any = None, *, position_ids_BT: Tensor | None = None
    ) -> Tensor:
        """Logits [B, T, V] of rows that all use this set; `cache` is from `new_cache`, or of transformers.

        `position_ids_BT` as for `PartsModel.forward`.
        """
        return self.logits(self.read(input_ids_BT, rows, cache, position_ids_BT=position_ids_BT), rows)

    def read(
        self, input_ids_BT: Tensor, rows: Rows, cache: Any = None, *, position_ids_BT: Tensor | None = None
    ) -> Tensor:
        """The last hidden states [B, T, D]; `cache` and `position_ids_BT` as for `forward`."""
        self._require(rows)
        hidden_BTD, self.weights = self.model.read(input_ids_BT, self.active, cache, position_ids_BT=position_ids_BT)
        if self._recorder is not None:
            self._recorder.add(self.weights)
        return hidden_BTD

    @contextmanager
    def record_gates(self) -> Iterator[GateShares]:
        """Records the gate weights while text is scored within the context."""
        self._recorder = GateShares()
        try:
            yield self._recorder
        finally:
            self._recorder = None

    def new_cache(self) -> Any:
        """An empty cache of keys and values, for any model that holds these experts on this backbone."""
        return self.model.new_cache()

    def part_weights(self) -> Mapping[str, PartWeights]:
        """The weights of the last forward pass; empty before the first."""
        return {} if self.weights is None else {self.keys[0]: PartWeights(self.names, self.weights)}

    def shared_parameters(self) -> dict[str, nn.Parameter]:
        """None: the backbone is frozen."""
        return {}

    def expert_parameters(self, key: str) -> dict[str, nn.Parameter]:
        """The trained parameters: the active experts and their gates, or only their gates."""
        self._require(Rows.all_to(key, 1))
        of = self.model.expert_parameters if self.learning == "experts" else self.model.gate_parameters
        return {name: parameter for one in self.active for name, parameter in of(one).items()}

    def training_flops(self, context: int, *, experts_only: bool) -> int:
        """Operations per token trained on, forward and backward."""
        del experts_only  # nothing else ever learns
        count = get_parts_method(self.model.method_name).count_training
        configs = [self.model.shape_of(key) for key in self.active]
        return count(Shape.of(self.lm.config.to_dict()), context, configs, self.learning)

    def _require(self, rows: Rows) -> None:
        if unknown := set(rows.keys) - set(self.keys):
            raise ModelError(f"There is no expert “{min(unknown)}”.", f"Known: {self.keys[0]}.")
