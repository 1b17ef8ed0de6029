"""All experts of one base in memory, whatever their methods: each method opens a host for its own."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor, nn

from engine.config import RequestedPrecision, ServePrecision
from engine.device import choose_device
from engine.errors import ModelError
from engine.files import ArtifactRef
from engine.inference.cancellation import cancellable_lock
from engine.methods.base import Method
from engine.methods.registry import method_of_files
from engine.models.expert_model import CompositeModel, ExpertHost, ExpertModel
from engine.models.model_files import weights_in

_SHORT = {"BF16": torch.bfloat16, "F16": torch.float16}  # as safetensors names them


@dataclass(frozen=True)
class ChosenPrecision:
    """What weights are held in, and why, where it was not asked for and is worth a sentence."""

    precision: ServePrecision
    because: str = ""


def choose_precision(
    requested: RequestedPrecision, kept: Collection[ArtifactRef], device: str, capacity_bytes: int
) -> ChosenPrecision:
    """What the weights in these folders are held in, on the device of this name.

    `auto` is float32 on a CPU without instructions for the stored type of 16 bits, where their bytes fit.
    Weights that are in float32 already are `stored`.
    """
    if requested in ("stored", "bf16"):
        return ChosenPrecision(requested)
    types = {dtype for kind, dtype in _SHORT.items() if any(_short_sizes(one).get(kind) for one in kept)}
    if requested == "float32" or not types:
        return ChosenPrecision("float32" if types else "stored")
    used = choose_device(device)
    slow = sorted(str(type_).removeprefix("torch.") for type_ in types if not computes_in(type_, used))
    if not slow:
        return ChosenPrecision("stored")
    problem, size_bytes = f"This CPU has no instructions for {' and '.join(slow)}", loaded_bytes("float32", *kept)
    if size_bytes <= capacity_bytes:
        return ChosenPrecision(
            "float32",
            f"{problem}: these weights are served in float32, in twice the memory.",
        )
    return ChosenPrecision(
        "stored",
        f"{problem}, so prompts are read slowly: in float32 the weights would take {size_bytes:,} bytes, more than the "
        f"{capacity_bytes:,} for models in memory.",
    )


def computes_in(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether a device multiplies matrices of this type of 16 bits about as fast as of float32, or faster.

    oneDNN knows it of a CPU. It counts AVX-512 without bf16 instructions as able to: it reads prompts there in 1.2
    times the time of float32, and decodes in half of it.
    """
    if device.type != "cpu":
        return True
    if not torch.backends.mkldnn.is_available():
        return False
    mkldnn = torch.ops.mkldnn
    is_bf16 = dtype == torch.bfloat16
    return bool(mkldnn._is_mkldnn_bf16_supported() if is_bf16 else mkldnn._is_mkldnn_fp16_supported())


def loaded_bytes(precision: ServePrecision, *kept: ArtifactRef) -> int:
    """Bytes of the tensors in folders while they are loaded: as stored, and in float32 twice those of 16 bits."""
    stored = sum(file.stat().st_size for one in kept for file in one.folder.glob("*.safetensors"))
    return stored + (2 * sum(sum(_short_sizes(one).values()) for one in kept) if precision == "float32" else 0)


def _short_sizes(kept: ArtifactRef) -> dict[str, int]:
    """The numbers of 16 bits in a folder's tensors, by type. Of damaged files none: loading names the damage."""
    files = tuple(sorted(kept.folder.glob("*.safetensors")))
    try:
        return _read_short_sizes(files)
    except ModelError:
        return {}


@lru_cache(maxsize=4096)
def _read_short_sizes(files: tuple[Path, ...]) -> dict[str, int]:
    weights = weights_in({file: file for file in files})
    return {kind: sum(size for one, size in weights.tensors.values() if one == kind) for kind in _SHORT}


@torch.no_grad()
def hold_in(modules: list[nn.Module], precision: ServePrecision) -> None:
    """Holds float32 parameters in bf16, or all of 16 bits in float32; `stored` changes nothing.

    As with a seed that is stored in bf16, modules name parameters that stay in float32 (`in_float32`): adapters, gates
    of MoDE. Buffers in float32 also stay: positions of rotary embeddings need the digits.
    """
    every = [module for model in modules for module in model.modules()]
    if precision == "bf16":
        for module in every:
            kept = getattr(module, "in_float32", ())
            for name, parameter in module.named_parameters(recurse=False):
                if parameter.dtype == torch.float32 and name not in kept:
                    parameter.data = parameter.data.to(torch.bfloat16)
    elif precision == "float32":
        for module in every:
            for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
                if tensor.dtype in _SHORT.values():
                    tensor.data = tensor.data.float()


class HostedBase:
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
                opened = {method.host_key: method.open(self._base, self._device)}
                self._hosts = {**self._hosts, **opened}  # others may iterate over the old one
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


def load_base(base: ArtifactRef, experts: Mapping[str, ArtifactRef], device: torch.device | str = "cpu") -> HostedBase:
    """These experts of a base, loaded; raises ModelError when there is none."""
    if not experts:
        raise ModelError("No expert was given to load.", "Choose an expert.")
    loaded = HostedBase(base, device)
    loaded.add(experts)
    return loaded


_Name = tuple[str, ServePrecision]


@dataclass(frozen=True)
class _CachedBase:
    model: HostedBase
    num_bytes: int
    keys: tuple[str, ...]  # experts that may be used: while others are read, the model's own keys are ahead of these


class ModelCache:
    """Holds at most `capacity_bytes` of parameters, and always the most recent model.

    Models are evicted before a new one is read, first those that no request uses. An evicted model stays in memory
    while a request still uses it. `others` gives the bytes that something else holds of the same capacity.
    """

    def __init__(
        self, capacity_bytes: int, device: torch.device | str = "cpu", others: Callable[[], int] = lambda: 0
    ) -> None:
        self._capacity_bytes, self._others = capacity_bytes, others
        self._in_use: Counter[_Name] = Counter()  # requests of each base
        self._device = device
        self._models: OrderedDict[_Name, _CachedBase] = OrderedDict()
        self._lock = threading.Lock()
        self.num_hits = self.num_misses = 0  # requests that found their experts loaded, and those that waited for them
        self._loading = threading.Lock()  # transformers builds no two at once, and their bytes are counted before

    def get(
        self,
        base: ArtifactRef,
        experts: Mapping[str, ArtifactRef],
        precision: ServePrecision = "stored",
        *,
        is_first: bool = True,
    ) -> HostedBase:
        """A base with at least these experts (by key), loaded and checked if need be.

        A request that asks again, for its next piece of text, is not another hit: `is_first` is False.
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
            missing_bytes = 0 if cached is None else cached.model.coming_bytes(_missing(cached.model, experts))
            if cached is not None and cached.num_bytes + missing_bytes + self._others() <= self._capacity_bytes:
                model = cached.model
            else:
                with self._lock:
                    self._models.pop(name, None)
                model, cached = HostedBase(base, self._device, precision), None  # the old one goes before it is filled
            self._read(name, model, experts)
            return model

    def _ready(self, name: _Name, experts: Mapping[str, ArtifactRef]) -> HostedBase | None:
        """The base, if it has all of these experts. The caller holds the lock."""
        cached = self._models.get(name)
        if cached is None or not set(experts) <= set(cached.keys):
            return None
        self._models.move_to_end(name)
        return cached.model

    def _read(self, name: _Name, model: HostedBase, experts: Mapping[str, ArtifactRef]) -> None:
        """Reads missing experts after evicting other models; counts what was loaded even if reading failed."""
        missing = _missing(model, experts)
        self._evict(name, model.coming_bytes(missing))
        try:
            model.add(missing)
        finally:
            if model.keys:
                with self._lock:
                    self._models[name] = _CachedBase(model, model.num_bytes(), tuple(model.keys))
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
        """Evicts models that no request uses, the least recently used first, until `coming_bytes` fit next to the rest.

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


def _missing(model: HostedBase, experts: Mapping[str, ArtifactRef]) -> dict[str, ArtifactRef]:
    return {key: expert for key, expert in experts.items() if key not in model.keys}
