"""Adds an expert's low-rank changes to the linear maps of attention and feed-forward networks, and to token vectors."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from engine.config import LoraConfig
from engine.methods.lora.adapters import adapters_of, all_places, fresh_adapter, merge
from engine.models.multi_expert import AdditiveLayer, MultiExpertModel, Placement


class AdaptedLinear(AdditiveLayer):
    """A linear map that all experts share; an adapter of an expert adds its change."""

    def merged(self, key: str) -> nn.Module:
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

    def merged(self, key: str) -> nn.Module:
        """A table with the change of this expert. The shared one, which may be the output embeddings, too, stays."""
        if key not in self.experts:
            return self.shared
        table = copy.copy(self.shared)
        table._parameters = {"weight": nn.Parameter(self.weight.detach().clone())}
        merge(table, self.experts[key])  # type: ignore[arg-type]
        return table


class BesideLinear(Placement):
    """Adapters beside linear maps. They may differ in rank and maps, so each is made from its tensors."""

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

    def merge(self, lm: Any, layers: Mapping[str, Any], key: str) -> None:
        changed = [one for one in layers.values() if isinstance(one, AdaptedEmbedding) and key in one.experts]
        super().merge(lm, layers, key)
        if changed:  # the vectors that the model reads are no longer those that it writes
            lm.config.tie_word_embeddings = False
