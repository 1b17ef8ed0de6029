"""One decoder with several experts: each row of a batch uses one of them, and everything else is shared.

Methods differ in the `Placement` of an expert's modules: instead of the feed-forward networks (DEMix), next to linear
maps (LoRA), before the text (a domain's token). Rows, caches, training, files and mixing are the same for all.

A placement replaces modules inside each layer, so the model's own forward pass stays as it is. The expert of each row
is given per call, by spans of rows, so one batch can carry many domains in training and E copies of one prompt in
mixing: shared weights are read once, and no request leaves a trace in the model.

Shapes: B rows, T positions, V vocabulary, E experts, D width of the embeddings.
"""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Protocol, cast

import torch
from torch import Tensor, nn

from engine.errors import ModelError, first_of
from engine.events import Progress
from engine.models.discovery import family_of
from engine.models.expert_model import TrainableModel, separate_texts
from engine.models.families import max_positions
from engine.models.flops import Shape, training_flops
from engine.models.likelihoods import decoder_of
from engine.models.rows import Rows, current_rows, with_rows
from engine.models.shared_layers import first_layer, levels_of_one_text
from engine.models.stored_tensors import fill, without_weights
from engine.text.blocks import EvalSample


class RowOptions(Protocol):
    """The properties of its method that a multi-expert model uses."""

    @property
    def experts_in(self) -> str:
        """The name of the placement in files."""

    @property
    def extra_positions(self) -> int:
        """Positions of the model's context that an expert takes."""

    @property
    def frozen_flops(self) -> Callable[[Shape, int, int], int]:
        """Operations per token to train only experts: of (shape, context, parameters of one)."""


class Placement(ABC):
    """The location of experts' modules in a decoder.

    A layer is a module with `experts`, an nn.ModuleDict by key, whose forward pass looks at `current_rows`.
    """

    made_from_tensors: ClassVar[bool] = False  # a model has no experts at first; each is made from its tensors

    def __init__(self, method: RowOptions) -> None:
        self.method = method

    @abstractmethod
    def insert(self, lm: Any, keys: Sequence[str]) -> dict[str, Any]:
        """Puts layers with these experts, all alike, into `lm` or next to it; gives them by their place."""

    def build(self, lm: Any, keys: Sequence[str], config: Any, seed: int = 0) -> MultiExpertModel:
        """A model to train, made of a seed; `config` is the method's own."""
        del config, seed
        return MultiExpertModel(lm, keys, self)

    def card(self) -> dict[str, Any]:
        """What files record of the placement in addition to its name; empty: nothing."""
        return {}

    def of_card(self, card: Mapping[str, Any]) -> Placement:
        """The placement that a base's card describes. Raises ModelError for a card that says it wrongly."""
        del card
        return self

    def expert_modules(self, layers: Mapping[str, Any], state: Mapping[str, Tensor]) -> dict[str, nn.Module]:
        """The modules of an expert by their place, from its tensors; only of experts that are `made_from_tensors`."""
        raise NotImplementedError

    def inputs(self, lm: Any, layers: Mapping[str, Any], input_ids_BT: Tensor) -> dict[str, Tensor]:
        """The decoder's input at the start of a text."""
        del lm, layers
        return {"input_ids": input_ids_BT}

    def start_from(self, model: MultiExpertModel, texts: Mapping[str, Sequence[EvalSample]]) -> Iterator[Progress]:
        """Sets what new experts take from their own text, by key, before they are trained."""
        del model, texts
        yield from ()

    def frozen_flops(self, shape: Shape, context: int, expert_size: int, first_layer: int) -> int:
        """Operations per token to train only experts of this size, which change layers from `first_layer` on."""
        del first_layer
        return self.method.frozen_flops(shape, context, expert_size)

    def merge(self, lm: Any, layers: Mapping[str, Any], key: str) -> None:
        """Replaces each layer by the expert's merged map. Raises ModelError if the expert cannot be merged."""
        for path, layer in layers.items():
            holder, _, attribute = path.rpartition(".")
            setattr(lm.get_submodule(holder), attribute, layer.map_of(key))


class AdditiveLayer(nn.Module):
    """A shared module; experts with a module of their own add its output for the same input."""

    def __init__(self, original: nn.Module) -> None:
        super().__init__()
        self.shared = original
        self.experts = nn.ModuleDict()

    def forward(self, x: Tensor) -> Tensor:
        """x is [B, T, in], or [B·T, in] from a family that flattens; so is the answer."""
        rows, out = current_rows(), cast(Tensor, self.shared(x))
        if len(rows.keys) == 1:
            return self._add(out, x, rows.keys[0])
        per_row = x.shape[0] // sum(rows.num_rows)
        sizes = [count * per_row for count in rows.num_rows]
        parts = zip(out.split(sizes), x.split(sizes), rows.keys, strict=True)
        if torch.is_grad_enabled():
            return torch.cat([self._add(*part) for part in parts])
        for part, own, key in parts:
            if key in self.experts:
                part.add_(self.change(part, own, key))
        return out

    def _add(self, out: Tensor, x: Tensor, key: str) -> Tensor:
        return (out + self.change(out, x, key)).to(out.dtype) if key in self.experts else out

    def change(self, out: Tensor, x: Tensor, key: str) -> Tensor:
        """The output of an expert's module, which is added to that of the shared one, `out`."""
        del out
        return cast(Tensor, self.experts[key](x))


class MultiExpertModel(TrainableModel):
    """A decoder with experts, known by keys without dots, in the order in which they were added."""

    def __init__(self, lm: Any, keys: Sequence[str], placement: Placement) -> None:
        """Takes `lm` and puts experts into it that are all alike."""
        super().__init__()
        assert not (placement.made_from_tensors and keys), "add these experts one by one, with their tensors"
        self.lm = lm
        self.keys = list(keys)
        self.placement = placement
        self.max_positions = max_positions(lm.config) - placement.method.extra_positions
        self._layers = placement.insert(lm, keys)
        self._first_layers: dict[str, int] = {}  # of experts that were asked for
        self._keeps_logits = "logits_to_keep" in inspect.signature(lm.forward).parameters
        in_lm = {id(module) for module in lm.modules()}
        self.beside = nn.ModuleDict({place: one for place, one in self._layers.items() if id(one) not in in_lm})

    @property
    def places(self) -> list[str]:
        """The names of the places where experts lie."""
        return list(self._layers)

    @property
    def experts_in(self) -> str:
        """The name of the placement in files."""
        return self.placement.method.experts_in

    def forward(
        self, input_ids_BT: Tensor, rows: Rows, cache: Any = None, *, position_ids_BT: Tensor | None = None
    ) -> Tensor:
        """Logits [B, T, V]; `cache` is a transformers Cache that is filled and used, or None.

        `position_ids_BT` start again at 0 at each text of a row, and so keep these apart; not together with a cache.
        """
        with self._computing(input_ids_BT, rows) as (ids_NT, output):
            text = self._text(ids_NT, cache, position_ids_BT)
            num_logits = input_ids_BT.shape[1]  # an expert's own positions predict nothing that is needed
            if self._keeps_logits:
                text["logits_to_keep"] = num_logits
            out = self.lm(**text, past_key_values=cache, use_cache=cache is not None)
        self._require_filled(cache)
        return output(out.logits[:, -num_logits:])

    def read(
        self, input_ids_BT: Tensor, rows: Rows, cache: Any = None, *, position_ids_BT: Tensor | None = None
    ) -> Tensor:
        """The last hidden states [B, T, D] of the text; `cache` and `position_ids_BT` as for `forward`."""
        cached = {"use_cache": False} if cache is None else {"use_cache": True, "past_key_values": cache}
        with self._computing(input_ids_BT, rows) as (ids_NT, output):
            out = decoder_of(self.lm)(**self._text(ids_NT, cache, position_ids_BT), **cached)
        self._require_filled(cache)
        return output(out.last_hidden_state[:, -input_ids_BT.shape[1] :])

    @contextmanager
    def _computing(self, input_ids_BT: Tensor, rows: Rows) -> Iterator[tuple[Tensor, Callable[[Tensor], Tensor]]]:
        """Within, a pass computes these rows. Gives what it reads, and what makes the rows of its output."""
        levels = levels_of_one_text(self, input_ids_BT, rows)
        if levels is None:
            with with_rows(rows):
                yield input_ids_BT, lambda output: output
            return
        with levels.in_use():
            yield input_ids_BT[: len(levels.first.from_input)], lambda output: output[levels.last.of_texts[0][:, 0]]

    def _require_filled(self, cache: Any) -> None:
        """Raises ModelError for a decoder that has left the cache as it was."""
        if cache is not None and not len(getattr(cache, "layers", "-")):
            problem = f"A model of the family “{family_of(self.lm)}” cannot go on with a text: it fills no cache."
            raise ModelError(problem, "Choose another seed.")

    def _text(self, input_ids_BT: Tensor, cache: Any, position_ids_BT: Tensor | None) -> dict[str, Any]:
        """The decoder's input: the text, with what the placement puts before it."""
        if cache is not None and cache.get_seq_length():
            return {"input_ids": input_ids_BT}
        if position_ids_BT is not None:
            if self.placement.method.extra_positions:  # the later texts of a row would have none
                problem = "Conversations of one block cannot be kept apart with experts that stand before the text."
                raise ModelError(problem, "Train without separate_conversations, or by another method.")
            return separate_texts(self.lm, input_ids_BT, position_ids_BT)
        return self.placement.inputs(self.lm, self._layers, input_ids_BT)

    def training_flops(self, context: int, *, experts_only: bool) -> int:
        """Operations per token trained on, forward and backward; shared parameters may be frozen."""
        shape = Shape.of(self.lm.config.to_dict())
        if not experts_only:
            return training_flops(shape, context)
        sizes = (parameter.numel() for key in self.keys[:1] for parameter in self.expert_parameters(key).values())
        return self.placement.frozen_flops(shape, context, sum(sizes), min(map(self.first_layer, self.keys), default=0))

    def start_from(self, texts: Mapping[str, Sequence[EvalSample]]) -> Iterator[Progress]:
        yield from self.placement.start_from(self, texts)

    def expert_state(self, key: str) -> dict[str, Tensor]:
        """An expert's tensors under the names they have in the seed model."""
        return {
            f"{place}.{name}": tensor
            for place, own in self.own_modules(key)
            for name, tensor in own.state_dict().items()
        }

    def shared_state(self) -> dict[str, Tensor]:
        """Everything that no expert owns; tied weights once."""
        kept = self.lm.state_dict()
        own = {id(buffer) for layer in self._layers.values() for buffer in layer.experts.buffers()}
        buffers = self.lm.named_buffers()
        return {
            **self.shared_parameters(),
            **{name: buffer for name, buffer in buffers if name in kept and id(buffer) not in own},
        }

    def expert_parameters(self, key: str) -> dict[str, nn.Parameter]:
        """The trainable view of `expert_state`, also named by expert."""
        return {
            f"{key}:{place}.{name}": parameter
            for place, own in self.own_modules(key)
            for name, parameter in own.named_parameters()
        }

    def shared_parameters(self) -> dict[str, nn.Parameter]:
        """The trainable view of `shared_state`."""
        own = {id(p) for layer in self._layers.values() for p in layer.experts.parameters()}
        return {name: p for name, p in self.lm.named_parameters() if id(p) not in own}

    def add_expert(self, key: str, *, copy_of: str | None = None, state: Mapping[str, Tensor] | None = None) -> None:
        """Adds an expert as a copy of another, or from its tensors. No other tensor is touched (law L8)."""
        if key in self.keys:
            raise ModelError(f"The expert “{key}” is in this model already.", "Use another key.")
        for path, expert in self._new_expert(copy_of, state).items():
            self._layers[path].experts[key] = expert
        self._first_layers.pop(key, None)
        self.keys.append(key)

    def _new_expert(self, copy_of: str | None, state: Mapping[str, Tensor] | None) -> dict[str, nn.Module]:
        if state is not None and self.placement.made_from_tensors:
            modules = self.placement.expert_modules(self._layers, state)
            return {place: module.to(self.device) for place, module in modules.items()}
        source = copy_of or (self.keys[0] if self.keys else None)
        if source is None:
            raise ModelError("The model has no expert to copy.", "Load an expert first.")
        if state is None:
            return {place: copy.deepcopy(own) for place, own in self.own_modules(source)}
        modules = {place: copy.deepcopy(own, without_weights(own)) for place, own in self.own_modules(source)}
        targets = {f"{place}.{name}": one for place, own in modules.items() for name, one in own.state_dict().items()}
        if wrong := fill(targets, state):
            problem = f"The expert's tensors do not fit its base: {first_of(wrong)}."
            raise ModelError(problem, "Load it on the base it was trained on.")
        return modules

    def remove_expert(self, key: str) -> None:
        """Removes an expert; the others stay as they are."""
        for path, _ in list(self.own_modules(key)):
            del self._layers[path].experts[key]
        self.keys.remove(key)

    def first_layer(self, key: str) -> int:
        """The first layer that an expert changes."""
        if key not in self._first_layers:
            self._first_layers[key] = first_layer(place for place, _ in self.own_modules(key))
        return self._first_layers[key]

    def own_modules(self, key: str) -> Iterator[tuple[str, nn.Module]]:
        """The modules of an expert, by their place."""
        self._require(key)
        for path, layer in self._layers.items():
            if key in layer.experts:
                yield path, layer.experts[key]

    def full_model(self, key: str) -> Any:
        """Merges this expert with the shared parameters into a plain decoder. Do not use this model afterwards.

        Raises ModelError if the expert cannot be merged.
        """
        self._require(key)
        self.placement.merge(self.lm, self._layers, key)
        return self.lm

    def _require(self, key: str) -> None:
        if key not in self.keys:
            raise ModelError(f"There is no expert “{key}” in this model.", f"It holds: {', '.join(self.keys)}.")
