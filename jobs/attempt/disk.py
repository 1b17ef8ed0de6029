"""Whether the disk is large enough for what a training writes at least; else it would stop at a checkpoint."""

from __future__ import annotations

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
    _require("checkpoints", needs.checkpoints_bytes - folder_size(work.folder), free_bytes(work.folder))
    _require("its result", needs.result_bytes, free_bytes(work.settings.artifacts_folder))


def _require(what: str, needed: int, free: int) -> None:
    if needed > free:
        raise DoesNotFit(
            f"It takes at least {megabytes(needed)} of disk for {what}, and {megabytes(free)} are free.",
            "Free some space and retry it, or set WORKBENCH_ARTIFACTS to a folder on a larger disk.",
        )
