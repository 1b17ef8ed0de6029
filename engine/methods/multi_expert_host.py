"""Experts of one base that lie in one model, in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from engine.files import ArtifactRef
from engine.methods.multi_expert_files import load_experts, read_expert
from engine.models.expert_model import ExpertModel
from engine.models.multi_expert import MultiExpertModel, Placement


class MultiExpertHost:
    """Loads the model with its first expert and adds the others to it."""

    def __init__(self, base: ArtifactRef, device: torch.device | str, new_placement: Callable[[], Placement]) -> None:
        self._base, self._device, self._new_placement = base, device, new_placement
        self._model: MultiExpertModel | None = None

    @property
    def keys(self) -> list[str]:
        return self._model.keys if self._model else []

    def add(self, experts: Mapping[str, ArtifactRef]) -> None:
        if self._model is None:
            self._model = load_experts(self._base, experts, self._new_placement()).to(self._device)
            return
        for key, kept in experts.items():
            self._model.add_expert(key, state=read_expert(kept, str(self._base.sha256)))

    def view(self, keys: Sequence[str], parts: Mapping[str, Sequence[str]]) -> list[ExpertModel]:
        del keys, parts
        return [self._model] if self._model else []

    def tensors(self) -> dict[str, Tensor]:
        return self._model.state_dict() if self._model else {}

    def modules(self) -> list[nn.Module]:
        return [self._model] if self._model else []

    def num_parameters(self, key: str) -> int:
        own = self._model.expert_parameters(key) if self._model else {}
        return sum(parameter.numel() for parameter in own.values())

    def num_bodies_to_load(self, experts: Mapping[str, ArtifactRef]) -> int:
        return int(self._model is None and bool(experts))

    def num_bytes(self) -> int:
        return sum(parameter.nbytes for parameter in self._model.parameters()) if self._model else 0
