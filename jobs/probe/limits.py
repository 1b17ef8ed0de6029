"""Memory and disk that a job can have on this machine now."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import psutil

from engine.free_memory import left_in_container
from workbench.settings import Settings
from workbench.store.storage import free_bytes


@dataclass(frozen=True)
class Limits:
    """Bytes that are free."""

    memory_bytes: int
    disk_bytes: int


def limits_now(settings: Settings) -> Limits:
    """Memory that is available, in a container what its limit leaves, and the disk of artifacts or of checkpoints."""
    memory = int(psutil.virtual_memory().available)
    with suppress(OSError, ValueError):
        memory = min(memory, left_in_container())
    return Limits(max(memory, 0), min(map(free_bytes, (settings.artifacts_folder, settings.root))))
