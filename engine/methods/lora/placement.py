"""Adds an expert's low-rank changes to the linear maps of attention and feed-forward networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from engine.config import LoraConfig
from engine.methods.lora.adapters import adapters_of, fresh_adapter, merge
from engine.models.families import linear_places
from engine.models.multi_expert import AdditiveLayer, MultiExpertModel, Placement


class AdaptedLinear(AdditiveLayer):
    """A linear map that all experts share; an adapter of an expert adds its change."""

    def merged(self, key: str) -> nn.Module:
        """The map with the change of this expert, to replace the layer with."""
        if key in self.experts:
            merge(self.shared, self.experts[key])  # type: ignore[arg-type]
        return self.shared


class BesideLinear(Placement):
    """Adapters beside linear maps. They may differ in rank and maps, so each is made from its tensors."""

    made_from_tensors = True

    def insert(self, lm: Any, keys: Sequence[str]) -> dict[str, Any]:
        layers = {}
        for name, holder, attribute in list(linear_places(lm)):
            layers[name] = AdaptedLinear(getattr(holder, attribute))
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
