"""Free disk space where a workbench writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.settings import Settings

ENOUGH_BYTES = 2_000_000_000  # for the demo with its checkpoints, and a margin


def least_free(settings: Settings) -> tuple[int, Path]:
    """The free bytes of the home's and the artifacts' disk, whichever has less, and the folder on it."""
    from workbench.store.storage import free_bytes

    return min((free_bytes(folder), folder) for folder in (settings.artifacts_folder, settings.root))


def trashed_bytes(settings: Settings) -> int:
    """The size of the trash."""
    from jobs.garbage_collection import trashed

    return sum(one.size_bytes for one in trashed(settings))
