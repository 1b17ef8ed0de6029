"""The last write of an attempt: results and the job's state, in one transaction under the fence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from jobs.attempt.outcomes import STOPPED, Outcome
from jobs.attempt.reporting import JobUpdate
from jobs.attempt.retries import with_retries
from jobs.attempt.work import Claim, Register
from workbench.access.actor import Actor, Role, acting_as
from workbench.job_records import leases
from workbench.settings import Settings


def finish(claim: Claim, settings: Settings, outcome: Outcome, update: JobUpdate | None = None) -> None:
    """Ends an attempt that is not done; a stop that the row requests meanwhile is respected."""

    def write(session: Session) -> None:
        stop_requested = renew_lease(session, claim, settings)
        write_update(session, claim, update)
        write_outcome(session, claim, _stronger(stop_requested, outcome))

    with_retries(settings, write)


def finish_done(
    claim: Claim, settings: Settings, register: Register, update: JobUpdate, measured: Mapping[str, Any]
) -> bool:
    """Registers the results and sets the job done, in one transaction; False if the job was cancelled instead.

    The job's result is that of `register` with the `measured` values.
    """

    def write(session: Session) -> bool:
        stop_requested = renew_lease(session, claim, settings)
        write_update(session, claim, update)
        if stop_requested == "cancel":
            write_outcome(session, claim, STOPPED["cancel"])
            return False
        leases.finish(session, claim.job_id, claim.fence, "done", result={**register(session), **measured})
        return True

    with acting_as(Actor(f"job {claim.job_id}", Role.ADMIN)):
        return with_retries(settings, write)


def renew_lease(session: Session, claim: Claim, settings: Settings) -> str:
    """Renews the lease and locks the row until the commit; returns the requested stop. Raises LeaseLostError."""
    return leases.renew(session, claim.job_id, claim.fence, settings.lease_seconds)


def write_update(session: Session, claim: Claim, update: JobUpdate | None) -> None:
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


def write_outcome(session: Session, claim: Claim, outcome: Outcome) -> None:
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


def _stronger(stop_requested: str, outcome: Outcome) -> Outcome:
    """A cancel overrides everything; a pause overrides the return to the queue."""
    if stop_requested == "cancel" or (stop_requested == "pause" and outcome.state == "queued"):
        return STOPPED[stop_requested]
    return outcome
