"""Leases: a worker claims a job, renews the lease, records progress, and finishes or releases the job.

A claim is one conditional update that raises the job's fence. Each later write carries the fence and requires that the
job still runs under it, else it raises LeaseLostError: a worker whose lease ran out cannot disturb the one that took
over. All times are those of the database's clock: the workers' own clocks may disagree.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from sqlalchemy import ColumnElement, Update, and_, case, delete, exists, insert, or_, select, tuple_, update
from sqlalchemy.orm import Session, aliased

from workbench.answers.cards import Failure
from workbench.errors import LeaseLostError
from workbench.registry.database import plain
from workbench.schema import database_clock
from workbench.schema.database_clock import for_update, without_sync
from workbench.schema.job_states import CHECKPOINT, UNSUCCESSFUL, Ending, JobState
from workbench.schema.job_tables import Job, JobDependency, JobEvent, Metric
from workbench.schema.tables import Artifact

_NO_ETA = {"eta_seconds": None, "eta_soonest": None, "eta_latest": None}
_BATCH = 500  # metrics in one statement: well below every database's limit on parameters
_SEE_LOG = "See the job's log for the reason, then retry the job."


def claim(session: Session, job_id: str, owner: str, lease_seconds: float, max_attempts: int) -> int | None:
    """Claims a job for an owner and returns its fence, or None if the job cannot be claimed.

    A queued job whose dependencies are done can be claimed, and a running one whose lease has run out. Attempts that
    made progress are not counted.
    """
    now = database_clock.now(session)
    is_free = or_(Job.state == "queued", has_expired(now))
    statement = (
        update(Job)
        .where(Job.id == job_id, is_free, Job.stop_requested == "", ~waits(), _attempts_left(max_attempts))
        .values(state="running", fence=Job.fence + 1, owner=owner[:120], attempt=_counted_attempts() + 1)
        .values(lease_until=now + lease_seconds, started_at=now, finished_at=None)
        .values(error="", next_step="", failure=None)
        .returning(Job.fence)
    )
    fence: int | None = session.execute(without_sync(statement)).scalar_one_or_none()
    if fence is None:
        if session.scalar(select(Job.id).where(Job.id == job_id, is_free)) is not None:
            # It waits, or can never start: then its row gets the reason.
            expire(session, now, max_attempts, lease_seconds)
        return None
    add_event(session, job_id, f"Started by {owner}.")
    return fence


def renew(session: Session, job_id: str, fence: int, lease_seconds: float) -> str:
    """Extends the lease and returns the stop request: "", "cancel" or "pause"."""
    until = database_clock.now(session) + lease_seconds
    statement = _mine(job_id, fence).values(lease_until=until).returning(Job.stop_requested)
    stop_request: str | None = session.execute(without_sync(statement)).scalar_one_or_none()
    if stop_request is None:
        raise _lease_lost(job_id, fence)
    return stop_request


def stop_request(session: Session, job_id: str) -> str:
    """The stop request of a job, as `renew` returns it, without writing."""
    return session.scalar(select(Job.stop_requested).where(Job.id == job_id)) or ""


def record(
    session: Session,
    job_id: str,
    fence: int,
    *,
    progress: float | None = None,
    note: str | None = None,
    eta_seconds: float | None = None,
    eta_range: tuple[float, float] | None = None,
    metrics: Iterable[tuple[str, int, float]] = (),
) -> None:
    """Records progress (0 to 1), remaining seconds with their range, and metrics."""
    values: dict[str, Any] = {"fence": fence}
    if progress is not None:
        soonest, latest = eta_range or (None, None)
        eta = {"eta_seconds": eta_seconds, "eta_soonest": soonest, "eta_latest": latest}
        values |= {"progress": min(max(progress, 0.0), 1.0), **eta}
    if note is not None:
        values["progress_note"] = plain(note)
    _write(session, job_id, fence, values)
    _keep_metrics(session, job_id, metrics)


def finish(
    session: Session,
    job_id: str,
    fence: int,
    state: Ending,
    *,
    error: str = "",
    next_step: str = "",
    failure: Failure | None = None,
    result: dict[str, Any] | None = None,
) -> None:
    """Ends the claim with a final state. Repeating it is harmless."""
    ended_so = select(Job.id).where(Job.id == job_id, Job.fence == fence, Job.state == state)
    if session.scalar(ended_so) is not None:
        return
    values: dict[str, Any] = {"error": plain(error), "next_step": plain(next_step), "result": result or {}}
    values["failure"] = failure.model_dump(exclude_none=True) if failure else None
    if state == "done":
        values["progress"] = 1.0
    _write(session, job_id, fence, _without_worker(session, state) | values)
    add_event(session, job_id, f"{state.capitalize()}{': ' + error if error else '.'}")
    end_waiting(session)


def release(
    session: Session,
    job_id: str,
    fence: int,
    cause: str = "Its worker released it.",
    *,
    attempt_counts: bool = True,
) -> None:
    """Returns the job to the queue, for any worker to claim.

    The attempt counts unless it ended normally: a worker may be stopped any number of times. After an attempt that made
    progress, the count restarts.
    """
    attempt = _counted_attempts(0 if attempt_counts else 1)
    _write(session, job_id, fence, _without_worker(session, "queued") | {"attempt": attempt})
    add_event(session, job_id, f"Back in the queue: {cause}")


def has_expired(now: float) -> ColumnElement[bool]:
    """The condition that the lease of a running job is over: its worker is silent."""
    return and_(Job.state == "running", Job.lease_until < now)


def is_expired(job: Job, now: float) -> bool:
    """The same of a row."""
    return job.state == "running" and (job.lease_until or 0.0) < now


def has_progressed(session: Session, job_id: str) -> bool:
    """Whether the latest attempt at a job made progress: it wrote a checkpoint or an artifact."""
    return session.scalar(select(Job.id).where(Job.id == job_id, _has_progressed())) is not None


def has_attempts_left(session: Session, job_id: str, max_attempts: int) -> bool:
    """Whether another attempt at a job is allowed."""
    return session.scalar(select(Job.id).where(Job.id == job_id, _attempts_left(max_attempts))) is not None


def _attempts_left(max_attempts: int) -> ColumnElement[bool]:
    return _counted_attempts() < max_attempts


def _counted_attempts(forgiven: int = 0) -> ColumnElement[int]:
    """The attempts that count towards the maximum: after one that made progress, the count restarts."""
    return case((_has_progressed(), 0), else_=Job.attempt - forgiven)


def _has_progressed() -> ColumnElement[bool]:
    since = Job.started_at
    saved = exists().where(JobEvent.job_id == Job.id, JobEvent.at >= since, JobEvent.kind == CHECKPOINT)
    made = exists().where(Artifact.job_id == Job.id, Artifact.created_at >= since)  # such as the scores of a domain
    return or_(saved.correlate(Job), made.correlate(Job))


def _mine(job_id: str, fence: int) -> Update:
    return update(Job).where(Job.id == job_id, Job.fence == fence, Job.state == "running")


def _write(session: Session, job_id: str, fence: int, values: dict[str, Any]) -> None:
    statement = _mine(job_id, fence).values(**values).returning(Job.id)
    if session.execute(without_sync(statement)).scalar_one_or_none() is None:
        raise _lease_lost(job_id, fence)


def _lease_lost(job_id: str, fence: int) -> LeaseLostError:
    return LeaseLostError(f"This worker lost its lease on job {job_id} (fence {fence}).", "Nothing was written; stop.")


def _without_worker(session: Session, state: JobState) -> dict[str, Any]:
    common = {"state": state, "owner": "", "lease_until": None, "stop_requested": "", **_NO_ETA}
    if state == "queued":
        return common | {"sent_at": None}
    return common | {"finished_at": None if state == "paused" else database_clock.now(session)}


def _keep_metrics(session: Session, job_id: str, metrics: Iterable[tuple[str, int, float]]) -> None:
    # The newest value of a step replaces older ones. Numbers that are not finite are left out: JSON has none.
    points = {(name[:160], step): value for name, step, value in metrics if math.isfinite(value)}
    keys = list(points)
    for start in range(0, len(keys), _BATCH):
        some = keys[start : start + _BATCH]
        old = delete(Metric).where(Metric.job_id == job_id, tuple_(Metric.name, Metric.step).in_(some))
        session.execute(without_sync(old))
        rows = [{"job_id": job_id, "name": n, "step": s, "value": points[n, s]} for n, s in some]
        session.execute(insert(Metric), rows)


def expire(session: Session, now: float, max_attempts: int, lease_seconds: float = math.inf) -> list[str]:
    """Takes back jobs whose lease ran out and returns their ids. Fails jobs that can never start.

    A lease with more than `lease_seconds` left was given before the database's clock was set back: it is shortened.
    """
    if math.isfinite(lease_seconds):
        too_long = update(Job).where(Job.state == "running", Job.lease_until > now + lease_seconds)
        session.execute(without_sync(too_long.values(lease_until=now + lease_seconds)))
    taken = list(session.scalars(for_update(select(Job).where(has_expired(now)).order_by(Job.id))))
    for job in taken:
        _take_back(session, job, max_attempts)
    worn_out = select(Job).where(Job.state == "queued", ~_attempts_left(max_attempts)).order_by(Job.id)
    for job in session.scalars(for_update(worn_out)):
        _fail(session, job)
    end_waiting(session)
    return [job.id for job in taken]


def end_waiting(session: Session) -> None:
    """Ends queued jobs whose dependency failed or was cancelled with the same state, recursively.

    A job that waits for a failed and a cancelled one fails.
    """
    before = aliased(Job)
    hopeless = (
        select(Job, before.title, before.state)
        .join(JobDependency, JobDependency.job_id == Job.id)
        .join(before, before.id == JobDependency.after_id)
        .where(Job.state == "queued", before.state.in_(UNSUCCESSFUL))
        .order_by(Job.id, before.state.desc())
    )
    while rows := session.execute(for_update(hopeless, Job)).all():
        for job, title, state in rows:
            if job.state == "queued":  # else it waits for several, and has ended already
                _end(session, job, state, f"The job depends on “{title}”, which is {state}.", f"Retry “{title}”.")


def waits() -> ColumnElement[bool]:
    """The condition that a job waits for another that is not done."""
    before = aliased(Job)
    unfinished = exists().where(
        JobDependency.job_id == Job.id, before.id == JobDependency.after_id, before.state != "done"
    )
    return unfinished.correlate(Job)


def _take_back(session: Session, job: Job, max_attempts: int) -> None:
    if job.stop_requested:
        state: Ending = "cancelled" if job.stop_requested == "cancel" else "paused"
        stop_without_worker(session, job, state, "its worker stopped responding after the stop request.")
    elif not has_attempts_left(session, job.id, max_attempts):
        _fail(session, job)
    else:
        _set(job, _without_worker(session, "queued") | {"attempt": _counted_attempts()})
        add_event(session, job.id, "Back in the queue: its worker stopped responding.")


def stop_without_worker(session: Session, job: Job, state: Ending, cause: str = "") -> None:
    """Ends or pauses a job that no worker has."""
    _set(job, _without_worker(session, state))
    add_event(session, job.id, f"{state.capitalize()}{f': {cause}' if cause else '.'}")
    end_waiting(session)


def _fail(session: Session, job: Job) -> None:
    error = f"The worker process died or did not respond {job.attempt} times, without an error message."
    _end(session, job, "failed", error, _SEE_LOG)


def _end(session: Session, job: Job, state: JobState, error: str, next_step: str) -> None:
    _set(job, _without_worker(session, state) | {"error": error, "next_step": next_step, "failure": None})
    add_event(session, job.id, f"{state.capitalize()}: {error}")


def _set(job: Job, values: dict[str, Any]) -> None:
    for name, value in values.items():
        setattr(job, name, value)


def add_event(
    session: Session, job_id: str, message: str, *, kind: str | None = None, data: dict[str, Any] | None = None
) -> None:
    """Adds an event to a job's history: a message for people; `kind` and `data` hold what the code reads."""
    session.flush()
    attempt = select(Job.attempt).where(Job.id == job_id).scalar_subquery()
    event = insert(JobEvent).values(job_id=job_id, at=database_clock.now(session), attempt=attempt)
    session.execute(event.values(message=plain(message), kind=kind, data=data))
