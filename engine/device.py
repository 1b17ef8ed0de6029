"""The device: chosen by its name, its memory, and torch's `meta` for models that are shapes only.

Importing this loads no torch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
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


_is_on = ContextVar("shapes_only", default=False)


@contextmanager
def shapes_only() -> Iterator[None]:
    """Models that are built and loaded within are of torch's device `meta`; the bytes of their files are not checked.

    They are only good for counting: what a model would take, before it is loaded.
    """
    import torch

    token = _is_on.set(True)
    try:
        with torch.device("meta"):
            yield
    finally:
        _is_on.reset(token)


def is_shapes_only() -> bool:
    """Whether models are now built as shapes only."""
    return _is_on.get()


_MACHINE, _PROCESS = Path("/proc/meminfo"), Path("/proc/self/status")
_CGROUP = Path("/sys/fs/cgroup")  # of a container; `memory.max` is “max” where it has no limit


def most_memory(device: torch.device) -> int | None:
    """The most bytes that this process can have of a device's memory now; None where that is not known.

    On the CPU, swap also counts: with it a process is slow, but runs.
    """
    if device.type == "cuda":
        import torch

        number = torch.cuda.current_device() if device.index is None else device.index
        free, total = torch.cuda.mem_get_info(number)
        share = torch.cuda.get_per_process_memory_fraction(number)  # a job may have leased a part of the GPU
        return int(min(free + torch.cuda.memory_reserved(number), share * total))
    return most_main_memory() if device.type == "cpu" else None


def most_main_memory() -> int | None:
    """The most bytes of main memory that this process can have now, swap included; None on other systems than Linux."""
    free = free_main_memory()
    with suppress(OSError, KeyError, ValueError):
        return None if free is None else free + _sizes(_MACHINE)["SwapFree"] + _sizes(_PROCESS)["VmRSS"]
    return None


def free_main_memory() -> int | None:
    """Bytes of main memory that are free, without swap; None on other systems than Linux."""
    with suppress(OSError, KeyError, ValueError):
        free = _sizes(_MACHINE)["MemAvailable"]
        with suppress(OSError, ValueError):
            free = min(free, left_in_container())
        return max(free, 0)
    return None


def left_in_container() -> int:
    """Bytes until the container's limit; files in memory give way and do not count. Raises OSError, ValueError."""
    limit, used = (int((_CGROUP / name).read_text()) for name in ("memory.max", "memory.current"))
    lines = (line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
    return limit - used + next(int(value) for name, value in lines if name == "inactive_file")


def megabytes(size: int) -> str:
    """A size in words, such as `2,310 MB`, or `0.4 MB`."""
    return f"{size / 1e6:,.1f} MB" if size < 1e7 else f"{size / 1e6:,.0f} MB"


def _sizes(file: Path) -> dict[str, int]:
    """The sizes that Linux lists in a file, in bytes."""
    lines = (line.split() for line in file.read_text().splitlines())
    return {words[0].rstrip(":"): 1024 * int(words[1]) for words in lines if words[-1] == "kB"}
