"""The last write of an attempt: what was made and the job's state, in one transaction under the fence."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from sqlalchemy.orm import Session

from jobs.attempt.outcomes import STOPPED, Outcome
from jobs.attempt.reporting import JobUpdate
from jobs.attempt.work import Claim, Register
from workbench.errors import DiskFull, RegistryAway
from workbench.job_records import leases
from workbench.registry import database
from workbench.settings import Settings

AGAIN_SECONDS = 0.5
T = TypeVar("T")


def finish(claim: Claim, settings: Settings, ending: Outcome, news: JobUpdate | None = None) -> None:
    """Ends an attempt in some other way than done. What the row asks for meanwhile is heard."""

    def write(session: Session) -> None:
        asked = renew_lease(session, claim, settings)
        write_update(session, claim, news)
        write_outcome(session, claim, _stronger(asked, ending))

    _patiently(settings, write)


def finish_done(
    claim: Claim, settings: Settings, register: Register, news: JobUpdate, measured: Mapping[str, Any]
) -> bool:
    """Registers what was made and sets the job done, both or neither; False after a cancel: then it is cancelled.

    The result is what `register` gives, with what was `measured` on the way.
    """

    def write(session: Session) -> bool:
        asked = renew_lease(session, claim, settings)
        write_update(session, claim, news)
        if asked == "cancel":
            write_outcome(session, claim, STOPPED["cancel"])
            return False
        leases.finish(session, claim.job_id, claim.fence, "done", result={**register(session), **measured})
        return True

    return _patiently(settings, write)


def renew_lease(session: Session, claim: Claim, settings: Settings) -> str:
    """Renews the lease, and locks the row until the commit; gives what the row asks for. Raises LeaseLost."""
    return leases.renew(session, claim.job_id, claim.fence, settings.lease_seconds)


def write_update(session: Session, claim: Claim, news: JobUpdate | None) -> None:
    """Puts news onto the row, its curves and its events; raises LeaseLost when the job is another's."""
    if not news:
        return
    leases.record(
        session,
        claim.job_id,
        claim.fence,
        progress=news.progress,
        note=news.note,
        eta_seconds=news.eta.seconds if news.eta else None,
        eta_range=(news.eta.soonest, news.eta.latest) if news.eta else None,
        metrics=news.metrics,
    )
    for message in news.messages:
        leases.add_event(session, claim.job_id, message.text, kind=message.kind, data=message.data)


def write_outcome(session: Session, claim: Claim, ending: Outcome) -> None:
    """Writes an ending onto the row of a job that is still ours."""
    if ending.state == "queued":
        leases.release(session, claim.job_id, claim.fence, ending.problem, attempt_counts=ending.attempt_counts)
    else:
        leases.finish(
            session,
            claim.job_id,
            claim.fence,
            ending.state,
            error=ending.problem,
            next_step=ending.next_step,
            failure=ending.failure,
        )


def _stronger(asked: str, ending: Outcome) -> Outcome:
    """A cancel overrides everything; a pause overrides the way back into the queue."""
    if asked == "cancel" or (asked == "pause" and ending.state == "queued"):
        return STOPPED[asked]
    return ending


def _patiently(settings: Settings, write: Callable[[Session], T]) -> T:
    """One transaction, tried again while the registry does not answer, for as long as a lease lasts."""
    until = time.monotonic() + settings.lease_seconds
    while True:
        try:
            with database.transaction(settings) as session:
                return write(session)
        except (RegistryAway, DiskFull):
            if time.monotonic() >= until:
                raise
            time.sleep(AGAIN_SECONDS)
