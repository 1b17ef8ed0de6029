"""Memory and disk that a job can have on this machine now."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from workbench.settings import Settings
from workbench.store.storage import free_bytes

_CGROUP = Path("/sys/fs/cgroup")  # of a container; `memory.max` is “max” where it has no limit


@dataclass(frozen=True)
class Limits:
    """Bytes that are free."""

    memory_bytes: int
    disk_bytes: int


def limits_now(settings: Settings) -> Limits:
    """Memory that is available, in a container what its limit leaves, and the disk of artifacts or of checkpoints."""
    memory = int(psutil.virtual_memory().available)
    with suppress(OSError, ValueError):
        memory = min(memory, _left_in_container())
    return Limits(max(memory, 0), min(map(free_bytes, (settings.artifacts_folder, settings.root))))


def _left_in_container() -> int:
    """Bytes until the limit; files in memory give way and do not count."""
    limit, used = (int((_CGROUP / name).read_text()) for name in ("memory.max", "memory.current"))
    lines = (line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
    return limit - used + next(int(value) for name, value in lines if name == "inactive_file")
