"""An LRU cache of loaded models, bounded in bytes.

One model per base, with all requested experts; each request names its active ones, so requests share the model.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from engine.config import ServePrecision
from engine.files import ArtifactRef
from engine.loading.loaded_base import LoadedBase


@dataclass(frozen=True)
class _Loaded:
    model: LoadedBase
    num_bytes: int


class ModelCache:
    """Holds at most `capacity_bytes` of parameters, and always the most recent model.

    Models are evicted before a new one is read. An evicted model stays in memory while a request still uses it.
    """

    def __init__(
        self, capacity_bytes: int, device: torch.device | str = "cpu", precision: ServePrecision = "stored"
    ) -> None:
        self._capacity_bytes = capacity_bytes
        self._device, self._precision = device, precision
        self._models: OrderedDict[str, _Loaded] = OrderedDict()
        self._lock = threading.Lock()
        self.num_hits = self.num_misses = 0  # requests whose experts were all loaded, and the others
        self._loading: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def get(self, base: ArtifactRef, experts: Mapping[str, ArtifactRef]) -> LoadedBase:
        """A base with at least these experts (by key), loaded and checked if need be."""
        name = str(base.sha256)
        with self._lock:
            model, loading = self._ready(name, experts), self._loading[name]
            self.num_hits += model is not None
            self.num_misses += model is None
        if model is not None:  # no wait while other experts of this base are being read
            return model
        with loading:
            with self._lock:
                model, cached = self._ready(name, experts), self._models.get(name)
            if model is not None:
                return model
            model = cached.model if cached is not None else LoadedBase(base, self._device, self._precision)
            if cached is not None and not self._fits(cached, experts):
                del cached
                model = self._reload(name, base)
            self._read(name, model, experts)
            return model

    def _ready(self, name: str, experts: Mapping[str, ArtifactRef]) -> LoadedBase | None:
        """The base, if it has all of these experts. The caller holds the lock."""
        cached = self._models.get(name)
        if cached is None or not set(experts) <= set(cached.model.keys):
            return None
        self._models.move_to_end(name)
        return cached.model

    def _fits(self, cached: _Loaded, experts: Mapping[str, ArtifactRef]) -> bool:
        """True when the missing experts fit besides those of the base."""
        return cached.num_bytes + cached.model.coming_bytes(_missing(cached.model, experts)) <= self._capacity_bytes

    def _reload(self, name: str, base: ArtifactRef) -> LoadedBase:
        """The base without experts; its cached model is evicted."""
        with self._lock:
            self._models.pop(name, None)
        return LoadedBase(base, self._device, self._precision)

    def _read(self, name: str, model: LoadedBase, experts: Mapping[str, ArtifactRef]) -> None:
        """Reads missing experts after evicting other models; counts what was loaded even if reading failed."""
        missing = _missing(model, experts)
        self._evict(name, model.coming_bytes(missing))
        try:
            model.add(missing)
        finally:
            if model.keys:
                with self._lock:
                    self._models[name] = _Loaded(model, model.num_bytes())
                    self._models.move_to_end(name)
                self._evict(name)

    def loaded(self) -> dict[str, list[str]]:
        """Bases in memory (by their SHA-256) and the experts loaded on each."""
        with self._lock:
            return {base: list(cached.model.keys) for base, cached in self._models.items()}

    def num_bytes(self) -> int:
        """The bytes of all cached parameters."""
        with self._lock:
            return sum(cached.num_bytes for cached in self._models.values())

    def _evict(self, newest: str, coming_bytes: int = 0) -> None:
        """Evicts models, the least recently used first, until `coming_bytes` fit; never the newest."""
        with self._lock:
            held = sum(cached.num_bytes for cached in self._models.values())
            for name in [name for name in self._models if name != newest]:
                if held + coming_bytes <= self._capacity_bytes:
                    return
                held -= self._models.pop(name).num_bytes


def _missing(model: LoadedBase, experts: Mapping[str, ArtifactRef]) -> dict[str, ArtifactRef]:
    return {key: expert for key, expert in experts.items() if key not in model.keys}
