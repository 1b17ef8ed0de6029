"""Outcomes of attempts: state, cause and next step for every kind of error."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from engine.errors import LostNodeError, LostRankError, Problem, is_out_of_memory
from workbench.answers.cards import Failure
from workbench.errors import DiskFullError, LostGpuError, StoreFailedError
from workbench.schema.job_states import Ending
from workbench.store.storage import disk_full, is_full_disk

SMALLER = (
    "Resume the job when memory is free: it continues from its last checkpoint. Or submit it again with less: for a "
    "training with activation_checkpointing, fewer sequences_per_domain, a smaller block_size or a smaller model."
)
CHECK_GPU = (
    "The GPU or its driver may have failed: check it with nvidia-smi, then retry the job. If it fails again, report "
    "the error with the log {log}."
)
PERMIT = "Check its permissions and its disk, then retry the job: it continues from its last checkpoint."
RESUME = "Free some space, then resume the job: it continues from its last checkpoint."


@dataclass(frozen=True)
class Outcome:
    """A final state of an attempt, with one sentence for the cause and one for what to do."""

    state: Literal["queued", Ending]
    problem: str = ""
    next_step: str = ""
    attempt_counts: bool = True  # towards the maximum of attempts without a new checkpoint
    failure: Failure | None = None  # what the code knows about the error


STOPPED = {
    "cancel": Outcome("cancelled"),
    "pause": Outcome("paused"),
    "shutdown": Outcome("queued", "Its worker was stopped.", attempt_counts=False),
}


def outcome_of(error: Exception, folder: Path, log: Path) -> Outcome:
    """The outcome of an exception of the work in `folder`; the traceback is in `log`."""
    if isinstance(error, DiskFullError | StoreFailedError):
        return Outcome("paused", error.problem, error.next_step or RESUME)
    if is_full_disk(error, folder):
        return Outcome("paused", disk_full(folder).problem, RESUME)
    if isinstance(error, OSError) and error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return Outcome("failed", f"{error.filename or folder} cannot be used: {error.strerror}.", PERMIT)
    if is_out_of_memory(error):
        return Outcome("paused", f"There is not enough memory ({_first_line(error)}).", SMALLER)
    if _is_of_gpu(error):
        return Outcome("failed", f"A GPU reported an error ({_first_line(error)}).", CHECK_GPU.format(log=log))
    if isinstance(error, LostGpuError):
        return Outcome("queued", str(error), attempt_counts=False)
    if isinstance(error, LostNodeError):
        return Outcome("queued", error.problem)
    if isinstance(error, LostRankError) and error.lacks_memory:
        return Outcome("paused", error.problem, SMALLER)
    if isinstance(error, Problem):
        failure = Failure(code=error.error_code, line=getattr(error, "line", None))
        return Outcome("failed", error.cause, error.next_step, failure=failure)
    return Outcome(
        "failed",
        f"The job raised an unexpected error: {type(error).__name__}: {_first_line(error)}",
        f"The traceback is in the log {log}. Try again, or report the error with this log.",
    )


def _is_of_gpu(error: Exception) -> bool:
    """Whether CUDA reports that a computation failed. By name: this must not import torch."""
    names = {cls.__name__ for cls in type(error).__mro__}
    return "AcceleratorError" in names or (isinstance(error, RuntimeError) and "CUDA error" in str(error))


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "no message")[:500]
