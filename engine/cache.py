"""Loaded models, bounded in bytes: the least recently used goes first.

One model per base, holding the experts that were asked for; which take part is said per request, so requests share it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Mapping

import torch

from engine.files import Kept
from engine.models.demix import DemixModel
from engine.models.demix_files import load_demix, read_expert


class ModelCache:
    """Keeps at most `capacity_bytes` of parameters, and always the model asked for last.

    A model that leaves the cache lives on for as long as a request still uses it.
    """

    def __init__(self, capacity_bytes: int, device: torch.device | str = "cpu") -> None:
        self._capacity_bytes = capacity_bytes
        self._device = device
        self._models: OrderedDict[str, DemixModel] = OrderedDict()
        self._lock = threading.Lock()
        self._loading: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def get(self, base: Kept, experts: Mapping[str, Kept]) -> DemixModel:
        """The model of a base with at least these experts (by key), loaded and checked if need be."""
        name = str(base.sha256)
        with self._lock:
            loading = self._loading[name]
        with loading:  # others' models stay within reach while this one is read from disk
            with self._lock:
                model = self._models.get(name)
            if model is None or not self._complete(model, name, experts):
                model = load_demix(base, experts).to(self._device)
            with self._lock:
                self._models[name] = model
                self._models.move_to_end(name)
                self._make_room()
            return model

    def loaded(self) -> dict[str, list[str]]:
        """Bases in memory (by their SHA-256) and the experts loaded on each."""
        with self._lock:
            return {base: list(model.keys) for base, model in self._models.items()}

    def _complete(self, model: DemixModel, base_sha256: str, experts: Mapping[str, Kept]) -> bool:
        """Adds what is missing, if it fits beside what is there."""
        missing = {key: expert for key, expert in experts.items() if key not in model.keys}
        per_expert = sum(tensor.nbytes for tensor in model.expert_state(model.keys[0]).values())
        if missing and size_bytes(model) + len(missing) * per_expert > self._capacity_bytes:
            return False
        for key, expert in missing.items():
            model.add_expert(key, state=read_expert(expert, base_sha256))
        return True

    def _make_room(self) -> None:
        while len(self._models) > 1 and sum(map(size_bytes, self._models.values())) > self._capacity_bytes:
            self._models.popitem(last=False)


def size_bytes(model: torch.nn.Module) -> int:
    """Bytes of all parameters."""
    return sum(parameter.nbytes for parameter in model.parameters())
