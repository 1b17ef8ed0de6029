"""LoRA (Hu et al. 2021): adds a low-rank change to each linear map; the map itself does not change.

The table of token vectors is also such a map, from tokens: what is added is the change of a token's vector. The output
embeddings stay as they are, even where they are the same tensor (PEFT's default).

peft finds the maps and initializes their changes as published: one factor at random, the other zero, so that a model
starts as its seed. From then on an adapter is a dictionary of tensors that only this file reads: scoring, mixing and
generating with adapted models does not need peft.

Shapes: R rank, I inputs, O outputs of a map; of the token vectors the inputs are the vocabulary.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from engine.config import LoraConfig
from engine.errors import ModelError, first_of
from engine.methods.lora.descriptor import training_flops
from engine.models.discovery import family_of
from engine.models.families import Place, embedding_place, linear_places
from engine.models.flops import Shape
from engine.models.matrix_products import linear
from engine.models.multi_expert import AdditiveLayer, MultiExpertModel, Placement
from engine.models.shared_layers import first_layer

_DOWN, _UP, _SCALE = "down", "up", "scale"  # the names of an adapter's tensors at its map


class Adapter(nn.Module):
    """The change of one map, added to the map's output."""

    in_float32 = ("down", "up")
    scale: Tensor

    def __init__(self, down_RI: Tensor, up_OR: Tensor, scale_1: Tensor) -> None:
        super().__init__()
        self.down = nn.Parameter(down_RI.detach().clone())
        self.up = nn.Parameter(up_OR.detach().clone())
        self.register_buffer(_SCALE, scale_1.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """x is [..., I], the output [..., O], in the adapter's own precision."""
        x = x.to(self.down.dtype)
        return scale_output(linear(linear(x, self.down), self.up), self.scale)

    def change_OI(self) -> Tensor:
        """The change of the map's weight."""
        return scale_output(self.up @ self.down, self.scale)


class EmbeddingAdapter(Adapter):
    """The change of the token vectors, added to a token's vector."""

    def forward(self, ids: Tensor) -> Tensor:
        """ids is [...], the output [..., O]."""
        return scale_output(linear(nn.functional.embedding(ids, self.down.T), self.up), self.scale)


def adapted_places(lm: nn.Module, config: LoraConfig) -> Iterator[Place]:
    """Every map that gets an adapter. Raises ModelError for token vectors of another kind than a plain table."""
    every = list(linear_places(lm, config.targets))
    upper = [place for place in every if first_layer(place[:1]) >= config.first_layer]
    if every and not upper:
        num_layers = 1 + max(first_layer(place[:1]) for place in every)
        raise ModelError(
            f"first_layer is {config.first_layer}, but the model has {num_layers} layers, counted from 0.",
            "Choose a smaller number.",
        )
    yield from upper
    if config.embeddings:
        table = embedding_place(lm)
        if table is None:
            raise ModelError(
                f"The token vectors of the family “{family_of(lm)}” are not a plain table, so they get no adapter.",
                "Leave the embeddings as they are.",
            )
        yield table


def all_places(lm: nn.Module) -> Iterator[Place]:
    """Every map that an adapter may change."""
    yield from linear_places(lm)
    if place := embedding_place(lm):
        yield place


def scale_output(x: Tensor, scale_1: Tensor) -> Tensor:
    """The product in the precision of `x`."""
    return x * scale_1.to(x.dtype)


def fresh_adapter(lm: nn.Module, config: LoraConfig, seed: int = 0) -> dict[str, Tensor]:
    """A new adapter's tensors, named PLACE.down, PLACE.up and PLACE.scale; the same seed gives the same ones.

    The model is restored afterwards. Raises ModelError if peft is not installed, or the model has no such maps.
    """
    peft = _peft()
    places = list(adapted_places(lm, config))
    if not places:
        raise ModelError(
            f"The model has no linear maps for LoRA's targets “{config.targets}”.",
            "Choose other targets: the networks of a mixture of experts are not such maps.",
        )
    peft_config = peft.LoraConfig(
        r=config.rank,
        lora_alpha=config.alpha,
        target_modules=[f"lm.{name}" for name, _, _ in places],
        lora_dropout=0.0,
        fan_in_fan_out=is_transposed(getattr(holder, attribute) for _, holder, attribute in places),
    )
    required_grad = {id(parameter): parameter.requires_grad for parameter in lm.parameters()}
    shell = nn.Module()  # whose family peft does not know: for some it renames the targets
    shell.lm = lm
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        peft.inject_adapter_in_model(peft_config, shell, adapter_name="new")
    state: dict[str, Tensor] = {}
    for name, holder, attribute in places:
        layer: Any = getattr(holder, attribute)
        setattr(holder, attribute, layer.base_layer)
        down, up = _factors(layer)
        state[f"{name}.{_DOWN}"] = down.detach().float()  # as peft, whatever the seed's precision
        state[f"{name}.{_UP}"] = up.detach().float()
        state[f"{name}.{_SCALE}"] = torch.tensor([float(layer.scaling["new"])])
    for parameter in lm.parameters():
        parameter.requires_grad_(required_grad[id(parameter)])
    return state


def _factors(layer: Any) -> tuple[Tensor, Tensor]:
    """The two factors of a change as peft holds them."""
    if isinstance(layer.base_layer, nn.Embedding):
        return layer.lora_embedding_A["new"], layer.lora_embedding_B["new"]
    return layer.lora_A["new"].weight, layer.lora_B["new"].weight


def is_transposed(maps: Iterable[nn.Module]) -> bool:
    """Whether the linear maps among these are stored as [I, O], as those of GPT-2 are."""
    return any(not isinstance(one, nn.Linear | nn.Embedding) for one in maps)


def adapters_of(state: Mapping[str, Tensor], maps: Mapping[str, Any]) -> dict[str, Adapter]:
    """The adapters of a state by their place; raises ModelError unless they fit these maps."""
    names = {tensor_name.rpartition(".")[0] for tensor_name in state}
    wrong = [name for name in sorted(names) if name not in maps or not _fits(state, name, maps[name])]
    if wrong or not names:
        raise ModelError(
            f"The adapter does not fit its base: {first_of(wrong) if wrong else 'it has no tensors'}.",
            "Load it on the seed it was trained on.",
        )
    adapters: dict[str, Adapter] = {}
    for name in sorted(names):
        made = EmbeddingAdapter if isinstance(maps[name], nn.Embedding) else Adapter
        adapters[name] = made(*(state[f"{name}.{kind}"] for kind in (_DOWN, _UP, _SCALE)))
    return adapters


def _fits(state: Mapping[str, Tensor], name: str, linear: Any) -> bool:
    tensors = [state.get(f"{name}.{kind}") for kind in (_DOWN, _UP, _SCALE)]
    if any(tensor is None for tensor in tensors):
        return False
    down, up, scale = (list(tensor.shape) for tensor in tensors if tensor is not None)
    num_inputs, num_outputs = map_sizes(linear)
    return len(down) == 2 and scale == [1] and down[1] == num_inputs and up == [num_outputs, down[0]]


def map_sizes(linear: Any) -> tuple[int, int]:
    """Inputs and outputs of a map; GPT-2 stores its linear maps transposed, and token vectors are rows."""
    first, second = linear.weight.shape
    return (second, first) if isinstance(linear, nn.Linear) else (first, second)


@torch.no_grad()
def merge(linear: Any, adapter: Adapter) -> None:
    """Adds a change to the weight of its map; the outputs stay the same."""
    change_OI = adapter.change_OI()
    linear.weight.add_(change_OI if isinstance(linear, nn.Linear) else change_OI.T)


def _peft() -> Any:
    # It imports bitsandbytes, which warns on some processors that a package for 4-bit weights is missing.
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
    try:
        import peft
    except ImportError as error:
        raise ModelError("Training a LoRA adapter needs the package peft.", "Run: pip install peft") from error
    return peft


class AdaptedLinear(AdditiveLayer):
    """A linear map that all experts share; an adapter of an expert adds its change."""

    def map_of(self, key: str) -> nn.Module:
        """The map with the change of this expert, to replace the layer with."""
        if key in self.experts:
            merge(self.shared, self.experts[key])  # type: ignore[arg-type]
        return self.shared


class AdaptedEmbedding(AdditiveLayer):
    """The token vectors that all experts share; an adapter of an expert adds its change."""

    @property
    def weight(self) -> Tensor:
        """The shared vectors, which some families look at."""
        return self.shared.weight  # type: ignore[return-value]

    def map_of(self, key: str) -> nn.Module:
        """A table with the change of this expert. The shared one, which may also be the output embeddings, stays."""
        if key not in self.experts:
            return self.shared
        table = copy.copy(self.shared)
        table._parameters = {"weight": nn.Parameter(self.weight.detach().clone())}
        merge(table, self.experts[key])  # type: ignore[arg-type]
        return table


class BesideLinear(Placement):
    """Adapters next to linear maps. They may differ in rank and maps, so each is made from its tensors."""

    made_from_tensors = True

    def insert(self, lm: Any, keys: Sequence[str]) -> dict[str, Any]:
        layers = {}
        for name, holder, attribute in list(all_places(lm)):
            module = getattr(holder, attribute)
            layers[name] = (AdaptedEmbedding if isinstance(module, nn.Embedding) else AdaptedLinear)(module)
            setattr(holder, attribute, layers[name])
        return layers

    def build(self, lm: Any, keys: Sequence[str], config: LoraConfig, seed: int = 0) -> MultiExpertModel:
        adapter = fresh_adapter(lm, config, seed)
        model = MultiExpertModel(lm, [], self)
        for key in keys:
            model.add_expert(key, state=adapter)
        return model

    def expert_modules(self, layers: Mapping[str, Any], state: Mapping[str, Tensor]) -> dict[str, nn.Module]:
        if not state:  # the bare seed
            return {}
        return {**adapters_of(state, {place: layer.shared for place, layer in layers.items()})}

    def frozen_flops(self, shape: Shape, context: int, expert_size: int, first_layer: int) -> int:
        return training_flops(shape, context, expert_size, first_layer)

    def merge(self, lm: Any, layers: Mapping[str, Any], key: str) -> None:
        changed = [one for one in layers.values() if isinstance(one, AdaptedEmbedding) and key in one.experts]
        super().merge(lm, layers, key)
        if changed:  # the vectors that the model reads are no longer those that it writes
            lm.config.tie_word_embeddings = False
