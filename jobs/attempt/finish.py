"""The last write of an attempt: results, state, cause and next step, in one transaction under the fence."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sqlalchemy.orm import Session

from engine.errors import LostNodeError, LostRankError, Problem, is_out_of_memory
from jobs.attempt.reporting import JobUpdate
from jobs.attempt.work import JobClaim, Register, Result, with_retries
from workbench.access.actor import Actor, Role, acting_as
from workbench.answers.cards import Failure
from workbench.errors import DiskFullError, LostGpuError, StoreFailedError
from workbench.job_records import leases
from workbench.schema.job_states import Ending
from workbench.settings import Settings
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
class AttemptOutcome:
    """A final state of an attempt, with one sentence for the cause and one for what to do."""

    state: Literal["queued", Ending]
    problem: str = ""
    next_step: str = ""
    attempt_counts: bool = True  # towards the maximum of attempts without a new checkpoint
    failure: Failure | None = None  # what the code knows about the error


STOPPED = {
    "cancel": AttemptOutcome("cancelled"),
    "pause": AttemptOutcome("paused"),
    "shutdown": AttemptOutcome("queued", "Its worker was stopped.", attempt_counts=False),
}


def outcome_of(error: Exception, folder: Path, log: Path) -> AttemptOutcome:
    """The outcome of an exception of the work in `folder`; the traceback is in `log`."""
    if isinstance(error, DiskFullError | StoreFailedError):
        return AttemptOutcome("paused", error.problem, error.next_step or RESUME)
    if is_full_disk(error, folder):
        return AttemptOutcome("paused", disk_full(folder).problem, RESUME)
    if isinstance(error, OSError) and error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return AttemptOutcome("failed", f"{error.filename or folder} cannot be used: {error.strerror}.", PERMIT)
    if is_out_of_memory(error):
        return AttemptOutcome("paused", f"There is not enough memory ({_first_line(error)}).", SMALLER)
    classes = {cls.__name__ for cls in type(error).__mro__}  # by name: this must not import torch
    if "AcceleratorError" in classes or (isinstance(error, RuntimeError) and "CUDA error" in str(error)):
        return AttemptOutcome("failed", f"A GPU reported an error ({_first_line(error)}).", CHECK_GPU.format(log=log))
    if isinstance(error, LostGpuError):
        return AttemptOutcome("queued", str(error), attempt_counts=False)
    if isinstance(error, LostNodeError):
        return AttemptOutcome("queued", error.problem)
    if isinstance(error, LostRankError) and error.lacks_memory:
        return AttemptOutcome("paused", error.problem, SMALLER)
    if isinstance(error, Problem):
        failure = Failure(code=error.error_code, line=getattr(error, "line", None))
        return AttemptOutcome("failed", error.cause, error.next_step, failure=failure)
    return AttemptOutcome(
        "failed",
        f"The job raised an unexpected error: {type(error).__name__}: {_first_line(error)}",
        f"The traceback is in the log {log}. Try again, or report the error with this log.",
    )


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "no message")[:500]


def finish(claim: JobClaim, settings: Settings, outcome: AttemptOutcome, update: JobUpdate | None = None) -> None:
    """Ends an attempt that is not done; a stop that the row requests meanwhile is respected."""

    def write(session: Session) -> None:
        stop_requested = leases.renew(session, claim.job_id, claim.fence, settings.lease_seconds)
        write_update(session, claim, update)
        if stop_requested == "cancel" or (stop_requested == "pause" and outcome.state == "queued"):
            write_outcome(session, claim, STOPPED[stop_requested])
        else:
            write_outcome(session, claim, outcome)

    with_retries(settings, write)


def finish_done(
    claim: JobClaim, settings: Settings, made: Register | Result, update: JobUpdate, measured: Mapping[str, Any]
) -> bool:
    """Registers the results and sets the job done, in one transaction; False if the job was cancelled instead.

    The job's result, which is known or comes from registering, also has the `measured` values.
    """

    def write(session: Session) -> bool:
        stop_requested = leases.renew(session, claim.job_id, claim.fence, settings.lease_seconds)
        write_update(session, claim, update)
        if stop_requested == "cancel":
            write_outcome(session, claim, STOPPED["cancel"])
            return False
        result = made(session) if callable(made) else made
        leases.finish(session, claim.job_id, claim.fence, "done", result={**result, **measured})
        return True

    with acting_as(Actor(f"job {claim.job_id}", Role.ADMIN)):
        return with_retries(settings, write)


def write_update(session: Session, claim: JobClaim, update: JobUpdate | None) -> None:
    """Writes an update to the row, its curves and events; raises LeaseLostError when another worker has the job."""
    if not update:
        return
    leases.record(
        session,
        claim.job_id,
        claim.fence,
        progress=update.progress,
        note=update.note,
        eta_seconds=update.eta.seconds if update.eta else None,
        eta_range=(update.eta.soonest, update.eta.latest) if update.eta else None,
        metrics=update.metrics,
    )
    for message in update.messages:
        leases.add_event(session, claim.job_id, message.text, kind=message.kind, data=message.data)


def write_outcome(session: Session, claim: JobClaim, outcome: AttemptOutcome) -> None:
    """Writes an outcome to the row; raises LeaseLostError when another worker has the job."""
    if outcome.state == "queued":
        leases.release(session, claim.job_id, claim.fence, outcome.problem, attempt_counts=outcome.attempt_counts)
    else:
        leases.finish(
            session,
            claim.job_id,
            claim.fence,
            outcome.state,
            error=outcome.problem,
            next_step=outcome.next_step,
            failure=outcome.failure,
        )
