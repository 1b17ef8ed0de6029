"""MoDE experts in memory. Experts with the same number of blocks share a backbone.

So switching to another domain reads only its expert.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from engine.errors import ModelError
from engine.files import EXPERT_CARD, ArtifactRef
from engine.methods.mode.active_experts import ActiveExperts
from engine.methods.mode.files import open_backbone, read_parts
from engine.methods.mode.model import ModeModel
from engine.models.expert_model import ExpertModel


class ModeHost:
    """Holds a backbone for each number of blocks, with its experts."""

    def __init__(self, base: ArtifactRef, device: torch.device | str) -> None:
        self._base, self._device = base, device
        self._backbones: dict[int, ModeModel] = {}  # by how many blocks they have
        self._parts: dict[str, tuple[ModeModel, dict[str, str]]] = {}  # of each expert: where, and their keys by names

    @property
    def keys(self) -> list[str]:
        return list(self._parts)

    def add(self, experts: Mapping[str, ArtifactRef]) -> None:
        for key, kept in experts.items():
            self._add(key, kept)

    def _add(self, key: str, kept: ArtifactRef) -> None:
        parts = read_parts(kept, str(self._base.sha256))  # all, before the first is added
        num_blocks = parts[0].shape.num_blocks
        model = self._backbones.get(num_blocks)
        if model is None:
            model = self._backbones[num_blocks] = open_backbone(self._base, num_blocks).to(self._device)
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

    def _active(self, key: str, names: Sequence[str] | None) -> ActiveExperts:
        model, keys = self._parts[key]
        chosen = list(keys) if names is None else list(names)
        if unknown := [name for name in chosen if name not in keys]:
            raise ModelError(f"There is no part “{unknown[0]}” in this expert.", f"It has: {', '.join(keys)}.")
        return ActiveExperts(model, [keys[name] for name in chosen], key, names=chosen)

    def tensors(self) -> dict[str, Tensor]:
        return {
            f"{num_blocks} blocks: {name}": tensor
            for num_blocks, model in self._backbones.items()
            for name, tensor in model.state_dict().items()
        }

    def modules(self) -> list[nn.Module]:
        return list(self._backbones.values())

    def num_parameters(self, key: str) -> int:
        model, keys = self._parts[key]
        return sum(map(model.num_added, keys.values()))

    def num_bodies_to_load(self, experts: Mapping[str, ArtifactRef]) -> int:
        return len({_num_blocks(kept) for kept in experts.values()} - {*self._backbones})

    def num_bytes(self) -> int:
        return sum(parameter.nbytes for model in self._backbones.values() for parameter in model.parameters())


def _num_blocks(expert: ArtifactRef) -> int | None:
    """The number of blocks of an expert's backbone; None if its card cannot be read."""
    try:
        card = json.loads((expert.folder / EXPERT_CARD).read_text(encoding="utf-8"))
        return int(card["parts"][0]["shape"]["num_blocks"])
    except (OSError, ValueError, LookupError, TypeError):
        return None
