"""Where the vectors lie: next to the last map of each feed-forward network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from engine.errors import ModelError
from engine.models.families import ffn_places
from engine.models.multi_expert import AdditiveLayer, MultiExpertModel, Placement


class Bias(nn.Module):
    """The vector of one expert at one place."""

    strength: Tensor

    def __init__(self, vector_D: Tensor, strength_1: Tensor) -> None:
        super().__init__()
        self.vector = nn.Parameter(vector_D.detach().clone())
        self.register_buffer("strength", strength_1.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        return (self.strength * self.vector).to(x.dtype)


class Biases(Placement):
    """Vectors may differ in strength, so each expert is made from its tensors."""

    made_from_tensors = True

    def insert(self, lm: Any, keys: Sequence[str]) -> dict[str, Any]:
        last = {name.rpartition(".mlp.")[0]: (name, holder, attribute) for name, holder, attribute in ffn_places(lm)}
        layers = {}
        for name, holder, attribute in last.values():
            layers[name] = AdditiveLayer(getattr(holder, attribute))
            setattr(holder, attribute, layers[name])
        return layers

    def build(self, lm: Any, keys: Sequence[str], config: Any, seed: int = 0) -> MultiExpertModel:
        model, width = MultiExpertModel(lm, [], self), int(lm.config.hidden_size)
        for key in keys:
            state = {f"{place}.vector": torch.zeros(width) for place in model.places}
            state |= {f"{place}.strength": torch.tensor([config.strength]) for place in model.places}
            model.add_expert(key, state=state)
        return model

    def expert_modules(self, layers: Mapping[str, Any], state: Mapping[str, Tensor]) -> dict[str, nn.Module]:
        return {layer: Bias(state[f"{layer}.vector"], state[f"{layer}.strength"]) for layer in layers}

    def merge(self, lm: Any, layers: Mapping[str, Any], key: str) -> None:
        raise ModelError("An expert of the toy method is not a model of its own.", "Mix it instead.")
