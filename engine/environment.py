"""What the bits of a computation depend on besides its input: device, processor, threads and versions.

Importing this loads no torch.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from engine.device import choose_device

_LIBRARIES = ("torch", "transformers", "tokenizers", "safetensors", "numpy")


@dataclass(frozen=True)
class Environment:
    """Equal bits are promised on a CPU, where all of this is the same."""

    device: str  # cpu, or the model of the GPU
    processor: str
    instructions: str  # the vector instructions that torch uses, such as AVX2
    threads: int  # of torch in the process that trains
    processes: int  # that were asked for; 0: one for each GPU
    versions: dict[str, str]

    @property
    def is_cpu(self) -> bool:
        return self.device == "cpu"

    def changes(self, now: Environment) -> list[str]:
        """What is not as it was, such as `threads 2, now 1`."""
        return differences(_flat(self), _flat(now))


def differences(before: Mapping[str, str | int], after: Mapping[str, str | int]) -> list[str]:
    """The values that are not as they were, such as `torch 2.12.1, now 2.13.0`."""
    names = dict.fromkeys([*before, *after])
    return [
        f"{name} {before.get(name, 'unknown')}, now {after.get(name, 'unknown')}"
        for name in names
        if before.get(name) != after.get(name)
    ]


def library_versions() -> dict[str, str]:
    """The versions of the libraries that compute."""
    return {name: version(name) for name in _LIBRARIES}


def versions() -> dict[str, str]:
    """Versions of Python, of this program and of the libraries that numbers come from."""
    own = {"python": platform.python_version(), "expert-workbench": version("expert-workbench")}
    return {**own, **library_versions()}


def device_name(name: str = "auto") -> str:
    """A device with its model name: `cuda:0 (NVIDIA H200)`, `cpu (x86_64)`."""
    import torch

    device = choose_device(name)
    return f"{device} ({torch.cuda.get_device_name(device) if device.type == 'cuda' else platform.machine()})"


def current_environment(device: str, processes: int) -> Environment:
    """The environment of this process, which computes on `device`."""
    import torch

    chosen = choose_device(device)
    return Environment(
        device=torch.cuda.get_device_name(chosen) if chosen.type == "cuda" else chosen.type,
        processor=_processor(),
        instructions=torch.backends.cpu.get_cpu_capability(),
        threads=torch.get_num_threads(),
        processes=processes,
        versions=library_versions(),
    )


def _processor() -> str:
    """The model of the CPU as Linux names it, else what Python knows of it."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def _flat(environment: Environment) -> dict[str, str | int]:
    values = asdict(environment)
    return {**values.pop("versions"), **values}
