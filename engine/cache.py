"""Loaded models, bounded in bytes: the least recently used goes first.

One model per base, holding the experts that were asked for; which take part is said per request, so requests share it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from engine.files import Kept
from engine.models.hosted import Hosted, host


@dataclass(frozen=True)
class _Loaded:
    model: Hosted
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

    def get(self, base: Kept, experts: Mapping[str, Kept]) -> Hosted:
        """A base with at least these experts (by key), loaded and checked if need be."""
        name = str(base.sha256)
        with self._lock:
            loading = self._loading[name]
        with loading:  # others' models stay within reach while this one is read from disk
            with self._lock:
                there = self._models.get(name)
                if there is not None and all(key in there.model.keys for key in experts):
                    self._models.move_to_end(name)
                    return there.model
            model = self._completed(there, name, experts) if there is not None else None
            if model is None:
                self._make_room(name, _stored_bytes(base.folder, *_folders(experts)))
                del there
                model = host(base, experts, self._device)
            with self._lock:
                self._models[name] = _Loaded(model, model.num_bytes())
                self._models.move_to_end(name)
            self._make_room(name)
            return model

    def loaded(self) -> dict[str, list[str]]:
        """Bases in memory (by their SHA-256) and the experts loaded on each."""
        with self._lock:
            return {base: list(one.model.keys) for base, one in self._models.items()}

    def num_bytes(self) -> int:
        """Bytes of all parameters in memory that the cache holds."""
        with self._lock:
            return sum(one.num_bytes for one in self._models.values())

    def _completed(self, there: _Loaded, base_sha256: str, experts: Mapping[str, Kept]) -> Hosted | None:
        """The model with what was missing, if that fits beside what it holds; else None, and it leaves the cache."""
        missing = {key: expert for key, expert in experts.items() if key not in there.model.keys}
        if there.num_bytes + _stored_bytes(*_folders(missing)) > self._capacity_bytes:
            with self._lock:
                self._models.pop(base_sha256, None)
            return None
        there.model.add(missing)
        return there.model

    def _make_room(self, newest: str, coming_bytes: int = 0) -> None:
        """Lets go of models, the least recently used first, until what comes fits; never of the newest."""
        with self._lock:
            held = sum(one.num_bytes for one in self._models.values())
            for name in [name for name in self._models if name != newest]:
                if held + coming_bytes <= self._capacity_bytes:
                    return
                held -= self._models.pop(name).num_bytes


def _folders(experts: Mapping[str, Kept]) -> list[Path]:
    return [expert.folder for expert in experts.values()]


def _stored_bytes(*folders: Path) -> int:
    """Bytes of the tensors in folders, which are kept in the precision that they are loaded in."""
    return sum(file.stat().st_size for folder in folders for file in folder.glob("*.safetensors"))
