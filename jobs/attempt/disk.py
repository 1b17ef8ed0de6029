"""Whether the disk is large enough for what a training writes at least; else it would stop at a checkpoint."""

from __future__ import annotations

from pathlib import Path

from engine.errors import DoesNotFit
from engine.events import Requirements
from engine.files import folder_size
from engine.free_memory import megabytes
from jobs.attempt.work import Work
from workbench.store.storage import free_bytes


def require_disk(work: Work, needs: Requirements) -> None:
    """Raises DoesNotFit where checkpoints, or the result, are larger than what is free on their disk.

    Checkpoints of an earlier attempt have their place already.
    """
    checkpoints, results = work.folder, work.settings.artifacts_folder
    move = f"move the home folder {work.settings.root} to a larger disk"
    _require("checkpoints", needs.checkpoints_bytes - folder_size(checkpoints), checkpoints, move)
    _require("its result", needs.result_bytes, results, "set WORKBENCH_ARTIFACTS to a folder on a larger disk")


def _require(what: str, needed: int, folder: Path, change: str) -> None:
    if needed > (free := free_bytes(folder)):
        raise DoesNotFit(
            f"It takes at least {megabytes(needed)} of disk for {what}, and {megabytes(free)} are free.",
            f"Free some space and retry it, or {change}.",
        )
