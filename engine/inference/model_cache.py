"""Loaded models, bounded in bytes: the least recently used goes first.

One model per base, holding the experts that were asked for; which take part is said per request, so requests share it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from engine.files import ArtifactRef
from engine.inference.loaded import LoadedBase


@dataclass(frozen=True)
class _Loaded:
    model: LoadedBase
    num_bytes: int


class ModelCache:
    """Keeps at most `capacity_bytes` of parameters, and always the model asked for last.

    Room is made before a model is read. One that leaves the cache lives on for as long as a request still uses it.
    """

    def __init__(self, capacity_bytes: int, device: torch.device | str = "cpu") -> None:
        self._capacity_bytes = capacity_bytes
        self._device = device
        self._models: OrderedDict[str, _Loaded] = OrderedDict()
        self._lock = threading.Lock()
        self._loading: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def get(self, base: ArtifactRef, experts: Mapping[str, ArtifactRef]) -> LoadedBase:
        """A base with at least these experts (by key), loaded and checked if need be."""
        name = str(base.sha256)
        with self._lock:
            found, loading = self._ready(name, experts), self._loading[name]
        if found is not None:  # nobody waits for what others of this base are reading
            return found
        with loading:
            with self._lock:
                found, there = self._ready(name, experts), self._models.get(name)
            if found is not None:
                return found
            model = there.model if there is not None else LoadedBase(base, self._device)
            if there is not None and not self._fits(there, experts):
                del there
                model = self._begun_again(name, base)
            self._read(name, model, experts)
            return model

    def _ready(self, name: str, experts: Mapping[str, ArtifactRef]) -> LoadedBase | None:
        """The base, if it holds all of these. The caller has the lock."""
        there = self._models.get(name)
        if there is None or not set(experts) <= set(there.model.keys):
            return None
        self._models.move_to_end(name)
        return there.model

    def _fits(self, there: _Loaded, experts: Mapping[str, ArtifactRef]) -> bool:
        """Whether what is missing fits beside what the base holds."""
        return there.num_bytes + there.model.coming_bytes(_missing(there.model, experts)) <= self._capacity_bytes

    def _begun_again(self, name: str, base: ArtifactRef) -> LoadedBase:
        """The base without experts; what it held leaves the cache."""
        with self._lock:
            self._models.pop(name, None)
        return LoadedBase(base, self._device)

    def _read(self, name: str, model: LoadedBase, experts: Mapping[str, ArtifactRef]) -> None:
        """Reads what is missing, after making room for it; what came of it counts even where reading failed."""
        missing = _missing(model, experts)
        self._make_room(name, model.coming_bytes(missing))
        try:
            model.add(missing)
        finally:
            if model.keys:
                with self._lock:
                    self._models[name] = _Loaded(model, model.num_bytes())
                    self._models.move_to_end(name)
                self._make_room(name)

    def loaded(self) -> dict[str, list[str]]:
        """Bases in memory (by their SHA-256) and the experts loaded on each."""
        with self._lock:
            return {base: list(one.model.keys) for base, one in self._models.items()}

    def num_bytes(self) -> int:
        """Bytes of all parameters in memory that the cache holds."""
        with self._lock:
            return sum(one.num_bytes for one in self._models.values())

    def _make_room(self, newest: str, coming_bytes: int = 0) -> None:
        """Lets go of models, the least recently used first, until what comes fits; never of the newest."""
        with self._lock:
            held = sum(one.num_bytes for one in self._models.values())
            for name in [name for name in self._models if name != newest]:
                if held + coming_bytes <= self._capacity_bytes:
                    return
                held -= self._models.pop(name).num_bytes


def _missing(model: LoadedBase, experts: Mapping[str, ArtifactRef]) -> dict[str, ArtifactRef]:
    return {key: expert for key, expert in experts.items() if key not in model.keys}
