"""A report of the verdicts with device and versions. Importing this loads no torch."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

from engine.device import choose_device

if TYPE_CHECKING:
    from engine.selfcheck.law import Checked

_LIBRARIES = ("torch", "transformers", "tokenizers", "safetensors", "numpy")  # those that numbers come from


@dataclass(frozen=True)
class Report:
    """The verdicts of a self-check, and where they were reached."""

    ok: bool
    failed: list[str]  # numbers of the laws that do not hold
    seconds: float
    device: str
    versions: dict[str, str]
    laws: list[Checked]


def report(checked: Sequence[Checked], device: str) -> Report:
    """The report on laws that were checked; it holds if there are any and none failed."""
    failed = [result.law for result in checked if not result.passed]
    return Report(
        ok=bool(checked) and not failed,
        failed=failed,
        seconds=sum(result.seconds for result in checked),
        device=device_name(device),
        versions=versions(),
        laws=list(checked),
    )


def versions() -> dict[str, str]:
    """Versions of Python, of this program and of the libraries that numbers come from."""
    return {
        "python": platform.python_version(),
        "expert-workbench": version("expert-workbench"),
        **{name: version(name) for name in _LIBRARIES},
    }


def device_name(name: str = "auto") -> str:
    """A device with its model name: `cuda:0 (NVIDIA H200)`, `cpu (x86_64)`."""
    import torch

    device = choose_device(name)
    if device.type == "cuda":
        return f"{device} ({torch.cuda.get_device_name(device)})"
    return f"{device} ({platform.machine()})"
