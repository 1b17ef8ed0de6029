"""How much room is left where a workbench writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.settings import Settings

ENOUGH_BYTES = 2_000_000_000  # the demo with its checkpoints, and a little air


def least_room(settings: Settings) -> tuple[int, Path]:
    """Bytes free on the fuller of the disks that hold the home and the artifacts, and the folder there."""
    from workbench.store.storage import free_bytes

    return min((free_bytes(folder), folder) for folder in (settings.artifacts_folder, settings.root))


def trashed_bytes(settings: Settings) -> int:
    """Bytes in the trash, which one command frees."""
    from jobs.garbage_collection import trashed

    return sum(one.size_bytes for one in trashed(settings))
