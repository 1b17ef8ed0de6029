"""Loaded models, bounded in bytes: the least recently used goes first.

One model per base, holding every expert that was asked for; which take part is said per request, so requests share it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

import torch

from engine.files import verify_folder
from engine.models.demix import DemixModel
from engine.models.demix_files import load_demix, read_expert


class ModelCache:
    """Keeps at most `capacity_bytes` of parameters, and always the model asked for last."""

    def __init__(self, capacity_bytes: int, device: torch.device | str = "cpu") -> None:
        self._capacity_bytes = capacity_bytes
        self._device = device
        self._models: OrderedDict[str, DemixModel] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, base: Path, base_sha256: str, experts: Mapping[str, Path]) -> DemixModel:
        """The model of a base with at least these experts (key -> folder), loaded and checked if need be."""
        with self._lock:
            model = self._models.get(base_sha256)
            if model is None:
                verify_folder(base, base_sha256)
                model = load_demix(base, experts).to(self._device)
            for key, folder in experts.items():
                if key not in model.keys:
                    model.add_expert(key, state=read_expert(folder, base_sha256))
            self._models[base_sha256] = model
            self._models.move_to_end(base_sha256)
            self._make_room()
            return model

    def loaded(self) -> dict[str, list[str]]:
        """Bases in memory and the experts loaded on each."""
        return {base: list(model.keys) for base, model in self._models.items()}

    def _make_room(self) -> None:
        while len(self._models) > 1 and sum(map(size_bytes, self._models.values())) > self._capacity_bytes:
            self._models.popitem(last=False)


def size_bytes(model: torch.nn.Module) -> int:
    """Bytes of all parameters."""
    return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
