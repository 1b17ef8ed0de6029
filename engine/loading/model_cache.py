"""An LRU cache of loaded models, bounded in bytes.

One model per base and precision, with all requested experts; each request names its active ones, so requests share the
model.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from engine.config import ServePrecision
from engine.files import ArtifactRef
from engine.inference.cancellation import cancellable_lock
from engine.loading.loaded_base import LoadedBase

_Name = tuple[str, ServePrecision]


@dataclass(frozen=True)
class _Loaded:
    model: LoadedBase
    num_bytes: int
    keys: tuple[str, ...]  # experts that may be used: while others are read, the model's own keys are ahead of these


class ModelCache:
    """Holds at most `capacity_bytes` of parameters, and always the most recent model.

    Models are evicted before a new one is read, first those that no request uses. An evicted model stays in memory
    while a request still uses it. `others` gives the bytes that something else holds of the same capacity.
    """

    def __init__(
        self,
        capacity_bytes: int,
        device: torch.device | str = "cpu",
        others: Callable[[], int] = lambda: 0,
    ) -> None:
        self._capacity_bytes, self._others = capacity_bytes, others
        self._in_use: Counter[_Name] = Counter()  # requests of each base
        self._device = device
        self._models: OrderedDict[_Name, _Loaded] = OrderedDict()
        self._lock = threading.Lock()
        self.num_hits = self.num_misses = 0  # requests that found their experts loaded, and those that waited for them
        self._loading = (
            threading.Lock()
        )  # one at a time: transformers builds no two at once, and their bytes are counted before

    def get(
        self,
        base: ArtifactRef,
        experts: Mapping[str, ArtifactRef],
        precision: ServePrecision = "stored",
        *,
        is_first: bool = True,
    ) -> LoadedBase:
        """A base with at least these experts (by key), loaded and checked if need be.

        A request that asks again, for its next piece of text, is no other hit: `is_first` is False.
        Raises CancelledError once nobody waits for a request that waits while another one loads. A load that has begun
        ends: it serves whoever asks again.
        """
        name = _name(base, precision)
        with self._lock:
            model = self._ready(name, experts)
            self.num_hits += model is not None and is_first
            self.num_misses += model is None
        if model is not None:  # no wait while others are being read
            return model
        with cancellable_lock(self._loading):
            with self._lock:
                model, cached = self._ready(name, experts), self._models.get(name)
            if model is not None:
                return model
            model = cached.model if cached is not None else LoadedBase(base, self._device, precision)
            if cached is not None and not self._fits(cached, experts):
                del cached
                model = self._reload(name, base, precision)
            self._read(name, model, experts)
            return model

    def _ready(self, name: _Name, experts: Mapping[str, ArtifactRef]) -> LoadedBase | None:
        """The base, if it has all of these experts. The caller holds the lock."""
        cached = self._models.get(name)
        if cached is None or not set(experts) <= set(cached.keys):
            return None
        self._models.move_to_end(name)
        return cached.model

    def _fits(self, cached: _Loaded, experts: Mapping[str, ArtifactRef]) -> bool:
        """True when the missing experts fit besides those of the base."""
        coming_bytes = cached.model.coming_bytes(_missing(cached.model, experts))
        return cached.num_bytes + coming_bytes + self._others() <= self._capacity_bytes

    def _reload(self, name: _Name, base: ArtifactRef, precision: ServePrecision) -> LoadedBase:
        """The base without experts; its cached model is evicted."""
        with self._lock:
            self._models.pop(name, None)
        return LoadedBase(base, self._device, precision)

    def _read(self, name: _Name, model: LoadedBase, experts: Mapping[str, ArtifactRef]) -> None:
        """Reads missing experts after evicting other models; counts what was loaded even if reading failed."""
        missing = _missing(model, experts)
        self._evict(name, model.coming_bytes(missing))
        try:
            model.add(missing)
        finally:
            if model.keys:
                with self._lock:
                    self._models[name] = _Loaded(model, model.num_bytes(), tuple(model.keys))
                    self._models.move_to_end(name)
                self._evict(name)

    def loaded(self) -> dict[tuple[str, ServePrecision], list[str]]:
        """Bases in memory (by their SHA-256 and precision) and the experts loaded on each."""
        with self._lock:
            return {base: list(cached.keys) for base, cached in self._models.items()}

    def num_bytes(self) -> int:
        """The bytes of all cached parameters."""
        with self._lock:
            return sum(cached.num_bytes for cached in self._models.values())

    @contextmanager
    def using(self, bases: Iterable[ArtifactRef], precision: ServePrecision = "stored") -> Iterator[None]:
        """Keeps these bases in memory while the block lasts, unless another model needs their place."""
        names = [_name(base, precision) for base in bases]
        with self._lock:
            self._in_use.update(names)
        try:
            yield
        finally:
            with self._lock:
                self._in_use.subtract(names)
                self._in_use += Counter()  # drops zeros

    def evict_idle(self, coming_bytes: int) -> int:
        """Evicts models that no request uses, the least recently used first, until `coming_bytes` fit beside the rest.

        Gives the bytes of the models that are left.
        """
        with self._lock:
            idle = [name for name in self._models if name not in self._in_use]
            return self._evict_some(idle, coming_bytes)

    def _evict(self, newest: _Name, coming_bytes: int = 0) -> None:
        """Evicts models, idle and least recently used ones first, until `coming_bytes` fit; never the newest."""
        with self._lock:
            others = [name for name in self._models if name != newest]
            self._evict_some(sorted(others, key=lambda name: name in self._in_use), coming_bytes + self._others())

    def _evict_some(self, names: Iterable[_Name], coming_bytes: int) -> int:
        held = sum(cached.num_bytes for cached in self._models.values())
        for name in names:
            if held + coming_bytes <= self._capacity_bytes:
                break
            held -= self._models.pop(name).num_bytes
        return held


def _name(base: ArtifactRef, precision: ServePrecision) -> _Name:
    return str(base.sha256), precision


def _missing(model: LoadedBase, experts: Mapping[str, ArtifactRef]) -> dict[str, ArtifactRef]:
    return {key: expert for key, expert in experts.items() if key not in model.keys}
