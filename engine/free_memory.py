"""How much memory this process can have: what it has and what is free."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_MACHINE, _PROCESS = Path("/proc/meminfo"), Path("/proc/self/status")
_CGROUP = Path("/sys/fs/cgroup")  # of a container; `memory.max` is “max” where it has no limit


def most_memory(device: torch.device) -> int | None:
    """The most bytes that this process can have of a device's memory now; None where that is not known.

    On the CPU, swap counts, too: with it a process is slow, but runs.
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
