"""Experts with parts in memory. Those that agree in what their configs say of the base share a copy of it.

So switching to another domain reads only its expert.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import torch
from torch import Tensor, nn

from engine.errors import EngineError, ModelError
from engine.files import ArtifactRef
from engine.methods.parts.active_parts import ActiveParts
from engine.methods.parts.files import PartsCard, read_parts
from engine.methods.parts.method import PartsMethod
from engine.methods.parts.parts_model import PartsModel
from engine.models.expert_model import ExpertModel


class PartsHost:
    """Holds a backbone for each `describe_base` of its experts, with their parts."""

    def __init__(self, method: PartsMethod, base: ArtifactRef, device: torch.device | str) -> None:
        self._method, self._base, self._device = method, base, device
        self._backbones: dict[str, PartsModel] = {}  # by description
        self._parts: dict[str, tuple[PartsModel, dict[str, str]]] = {}  # of each expert: where, and their keys by names

    @property
    def keys(self) -> list[str]:
        return list(self._parts)

    def add(self, experts: Mapping[str, ArtifactRef]) -> None:
        for key, kept in experts.items():
            self._add(key, kept)

    def _add(self, key: str, kept: ArtifactRef) -> None:
        parts = read_parts(kept, str(self._base.sha256))  # all, before the first is added
        described = self._method.describe_base(parts[0].shape)
        model = self._backbones.get(described)
        if model is None:
            model = self._method.open_base(self._base, parts[0].shape).to(self._device)
            self._backbones[described] = model
        keys = {part.name: f"{key}-{number}" for number, part in enumerate(parts)}
        try:
            for part in parts:
                model.add_expert(keys[part.name], part.shape, part.state)
        except BaseException:  # no half of an expert stays
            for held in set(keys.values()) & set(model.keys):
                model.remove_expert(held)
            raise
        self._parts[key] = model, keys

    def view(self, keys: Sequence[str], parts: Mapping[str, Sequence[str]]) -> list[ExpertModel]:
        return [self._active(key, parts.get(key)) for key in keys]

    def _active(self, key: str, names: Sequence[str] | None) -> ActiveParts:
        model, keys = self._parts[key]
        chosen = list(keys) if names is None else list(names)
        if unknown := [name for name in chosen if name not in keys]:
            raise ModelError(f"There is no part “{unknown[0]}” in this expert.", f"It has: {', '.join(keys)}.")
        return ActiveParts(model, [keys[name] for name in chosen], key, names=chosen)

    def tensors(self) -> dict[str, Tensor]:
        return {
            f"{described}: {name}": tensor
            for described, model in self._backbones.items()
            for name, tensor in model.state_dict().items()
        }

    def modules(self) -> list[nn.Module]:
        return list(self._backbones.values())

    def num_parameters(self, key: str) -> int:
        model, keys = self._parts[key]
        return sum(map(model.num_added, keys.values()))

    def num_bodies_to_load(self, experts: Mapping[str, ArtifactRef]) -> int:
        return len({self._described(kept) for kept in experts.values()} - {*self._backbones})

    def _described(self, expert: ArtifactRef) -> str | None:
        """The description of an expert's backbone; None if its card cannot be read."""
        with suppress(EngineError):
            return self._method.describe_base(next(iter(PartsCard.read(expert.folder).shapes.values())))
        return None

    def num_bytes(self) -> int:
        return sum(parameter.nbytes for model in self._backbones.values() for parameter in model.parameters())
