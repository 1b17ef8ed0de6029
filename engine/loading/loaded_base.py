"""All experts of one base in memory, whatever their methods: each method opens a host for its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from engine.config import ServePrecision
from engine.errors import ModelError
from engine.files import ArtifactRef
from engine.loading.served_precision import hold_in, loaded_bytes
from engine.methods.base import Method
from engine.methods.registry import method_of_files
from engine.models.composite import CompositeModel
from engine.models.expert_model import ExpertHost, ExpertModel


class LoadedBase:
    """A base's experts by their keys. `view` opens some of them for one request; the experts do not change."""

    def __init__(
        self, base: ArtifactRef, device: torch.device | str = "cpu", precision: ServePrecision = "stored"
    ) -> None:
        self._base = base
        self._precision = precision
        self._device = torch.device(device)
        self._hosts: dict[str, ExpertHost] = {}  # by their methods' `host_key`

    @property
    def keys(self) -> list[str]:
        """The experts in memory."""
        return [key for host in self._hosts.values() for key in host.keys]

    def add(self, experts: Mapping[str, ArtifactRef]) -> None:
        """Loads experts, every byte checked before use; raises ModelError where one is of another base."""
        for method, chosen in self._by_method(experts):
            if method.host_key not in self._hosts:
                opened = method.open(self._base, self._device)
                self._hosts = {
                    **self._hosts,
                    method.host_key: opened,
                }  # others may iterate over the old one
            host = self._hosts[method.host_key]
            try:
                host.add(chosen)
            finally:  # also what was loaded before one failed
                hold_in(host.modules(), self._precision)

    def view(self, keys: Sequence[str], parts: Mapping[str, Sequence[str]] | None = None) -> ExpertModel:
        """Some of the experts, for one request. `parts` names the active parts of those that have parts (else all)."""
        models: list[ExpertModel] = []
        for host_key in sorted(self._hosts, reverse=True):  # in the same order, so that caches fit after a reload
            host = self._hosts[host_key]
            if chosen := [key for key in keys if key in host.keys]:
                models += host.view(chosen, parts or {})
        return models[0] if len(models) == 1 else CompositeModel(models)

    def tensors(self) -> dict[str, Tensor]:
        """All tensors in memory by their names; of a later host, names that are taken say which host it is."""
        tensors: dict[str, Tensor] = {}
        for host_key, host in self._hosts.items():
            own = host.tensors()
            tensors |= {f"{host_key}: {name}": one for name, one in own.items()} if own.keys() & tensors.keys() else own
        return tensors

    def num_parameters(self, key: str) -> int:
        """The number of parameters of an expert in memory, those of the base left out."""
        return next(host.num_parameters(key) for host in self._hosts.values() if key in host.keys)

    def coming_bytes(self, experts: Mapping[str, ArtifactRef]) -> int:
        """Bytes that loading these experts would take, with every copy of the base that is not loaded yet."""
        num_bodies = 0
        for method, chosen in self._by_method(experts):
            host = self._hosts.get(method.host_key) or method.open(self._base, self._device)
            num_bodies += host.num_bodies_to_load(chosen)
        own = [kept for kept in experts.values() if kept != self._base]  # the bare seed has nothing of its own
        return loaded_bytes(self._precision, *[self._base] * num_bodies, *own)

    def num_bytes(self) -> int:
        """Bytes of all parameters."""
        return sum(host.num_bytes() for host in self._hosts.values())

    def _by_method(self, experts: Mapping[str, ArtifactRef]) -> list[tuple[Method, dict[str, ArtifactRef]]]:
        """The experts of each host, with a method that opens it."""
        groups: dict[str, tuple[Method, dict[str, ArtifactRef]]] = {}
        for key, kept in experts.items():
            method = method_of_files(kept.folder, self._base.folder)
            groups.setdefault(method.host_key, (method, {}))[1][key] = kept
        return [groups[host_key] for host_key in sorted(groups, reverse=True)]


def load_base(base: ArtifactRef, experts: Mapping[str, ArtifactRef], device: torch.device | str = "cpu") -> LoadedBase:
    """These experts of a base, loaded; raises ModelError when there is none."""
    if not experts:
        raise ModelError("No expert was given to load.", "Choose an expert.")
    loaded = LoadedBase(base, device)
    loaded.add(experts)
    return loaded
