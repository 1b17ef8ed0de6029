"""Chooses the device, and sets up a process before torch is first imported."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.errors import ModelError, NextStep, TrainingError

if TYPE_CHECKING:
    import torch


def process_environment(threads: int = 0) -> dict[str, str]:
    """The environment variables of compute processes. `threads` 0 means one for each core.

    Waiting OpenMP threads must sleep: two busy PyTorch processes otherwise spin against each other.
    Telemetry is off.
    """
    count = str(threads or os.cpu_count() or 1)
    return {
        "OMP_WAIT_POLICY": "passive",
        "OMP_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",  # our own progress says more
        "DO_NOT_TRACK": "1",
        "GRADIO_ANALYTICS_ENABLED": "False",
        "STREAMLIT_BROWSER_GATHER_USAGE_STATS": "false",
    }


def prepare_process(threads: int = 0) -> None:
    """Sets those variables here, unless they are set already. Call it before anything imports torch."""
    for name, value in process_environment(threads).items():
        os.environ.setdefault(name, value)


def choose_device(name: str = "auto") -> torch.device:
    """The device of this name, such as `auto`, `cpu` or `cuda:1`. Raises ModelError when it is not available."""
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ModelError(
            f"The device “{name}” is not available ({str(error).splitlines()[0]}).",
            NextStep.CHOOSE_DEVICE,
        ) from None
    return device


def num_gpus(device: str = "auto") -> int:
    """GPUs that a device of this name stands for: all, none, or the one that it names."""
    import torch

    if device in ("auto", "cuda"):
        return torch.cuda.device_count()
    return int(device.startswith("cuda"))


def require_gpus(num_processes: int, device: str) -> None:
    """Raises TrainingError unless this machine has a GPU for each process, or none and the device may be the CPU."""
    gpus = num_gpus(device)
    if num_processes > gpus and (gpus or device == "cuda"):
        raise TrainingError(
            f"Each process must have a GPU of its own, but there are {num_processes} processes and {gpus} GPUs.",
            f"Choose at most {gpus} processes, or the device cpu." if gpus else "Choose the device cpu.",
        )
