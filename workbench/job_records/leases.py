"""What a worker does to its job: claim, renew, record, finish, release.

A claim is one conditional update that raises the job's fence. Each later write carries the fence and asks
that the job still be running under it, else LeaseLost: a worker that slept through its lease cannot disturb
the one that took over.
Leases are compared by the workers' clocks, which must agree to within a few seconds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Any, Literal

from sqlalchemy import ColumnElement, Update, and_, case, delete, exists, insert, or_, select, tuple_, update
from sqlalchemy.orm import Session, aliased

from workbench.errors import LeaseLost
from workbench.job_records.event_kinds import CHECKPOINT
from workbench.registry.cards import Failure
from workbench.registry.tables import Artifact, Job, JobDependency, JobEvent, Metric
from workbench.registry.valid_text import plain

Ending = Literal["done", "failed", "cancelled", "paused"]

_NO_ETA = {"eta_seconds": None, "eta_soonest": None, "eta_latest": None}
_BATCH = 500  # metrics in one statement: well below every database's limit on parameters
_LOOK = "Look at the job's log for the reason, then try the job again."


# the worker's side --------------------------------------------------------------------------------


def claim(session: Session, job_id: str, owner: str, lease_seconds: float, max_attempts: int) -> int | None:
    """The fence of a job that is now the owner's, or None when it is not to be had.

    To be had: a queued job whose dependencies are done, or a running one whose lease has run out. Attempts that
    left something new to go on from are not counted.
    """
    now = time.time()
    begins_anew = and_(Job.state == "running", _has_progressed())
    wish = (
        update(Job)
        .where(Job.id == job_id, _is_free(now), Job.stop_requested == "", ~waits())
        .where(or_(Job.attempt < max_attempts, begins_anew))
        .values(state="running", fence=Job.fence + 1, owner=owner[:120])
        .values(attempt=case((begins_anew, 1), else_=Job.attempt + 1))
        .values(lease_until=now + lease_seconds, started_at=now, finished_at=None)
        .values(error="", next_step="", failure=None)
        .returning(Job.fence)
    )
    fence: int | None = session.execute(_without_sync(wish)).scalar_one_or_none()
    if fence is None:
        if session.scalar(select(Job.id).where(Job.id == job_id, _is_free(now))) is not None:
            expire(session, now, max_attempts)  # it waits, or can never start: then its row says why
        return None
    add_event(session, job_id, f"Started by {owner}.")
    return fence


def renew(session: Session, job_id: str, fence: int, lease_seconds: float) -> str:
    """Holds on to the job for another lease; gives what it was asked: "", "cancel" or "pause"."""
    wish = _mine(job_id, fence).values(lease_until=time.time() + lease_seconds).returning(Job.stop_requested)
    asked: str | None = session.execute(_without_sync(wish)).scalar_one_or_none()
    if asked is None:
        raise _lost(job_id, fence)
    return asked


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
    """Writes down how far the job has come (0 to 1), the seconds left with their range, points of its curves."""
    news: dict[str, Any] = {"fence": fence}
    if progress is not None:
        soonest, latest = eta_range or (None, None)
        eta = {"eta_seconds": eta_seconds, "eta_soonest": soonest, "eta_latest": latest}
        news |= {"progress": min(max(progress, 0.0), 1.0), **eta}
    if note is not None:
        news["progress_note"] = plain(note)
    _write(session, job_id, fence, news)
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
    """Ends this claim; saying the same end twice is fine."""
    if _has_ended_so(session, job_id, fence, state):
        return
    news: dict[str, Any] = {"error": plain(error), "next_step": plain(next_step), "result": result or {}}
    news["failure"] = failure.model_dump(exclude_none=True) if failure else None
    if state == "done":
        news["progress"] = 1.0
    _write(session, job_id, fence, _ended(state) | news)
    add_event(session, job_id, f"{state.capitalize()}{': ' + error if error else '.'}")
    end_waiting(session)


def release(
    session: Session,
    job_id: str,
    fence: int,
    cause: str = "Its worker let go of it.",
    *,
    attempt_counts: bool = True,
) -> None:
    """Puts the job back into the queue at once, for anybody to claim.

    The attempt counts, unless it ended in order: a worker may be stopped any number of times. After one that left
    something new to go on from, the count begins anew.
    """
    counted = Job.attempt if attempt_counts else Job.attempt - 1
    _write(session, job_id, fence, _ended("queued") | {"attempt": case((_has_progressed(), 0), else_=counted)})
    add_event(session, job_id, f"Back in the queue: {cause}")


def has_progressed(session: Session, job_id: str) -> bool:
    """Whether the latest attempt at a job left something new to go on from: a checkpoint, or an artifact."""
    return session.scalar(select(Job.id).where(Job.id == job_id, _has_progressed())) is not None


def _has_progressed() -> ColumnElement[bool]:
    since = Job.started_at
    saved = exists().where(JobEvent.job_id == Job.id, JobEvent.at >= since, JobEvent.kind == CHECKPOINT)
    made = exists().where(Artifact.job_id == Job.id, Artifact.created_at >= since)  # such as the scores of a domain
    return or_(saved.correlate(Job), made.correlate(Job))


def _is_free(now: float) -> ColumnElement[bool]:
    return or_(Job.state == "queued", and_(Job.state == "running", Job.lease_until < now))


def _mine(job_id: str, fence: int) -> Update:
    return update(Job).where(Job.id == job_id, Job.fence == fence, Job.state == "running")


def _write(session: Session, job_id: str, fence: int, news: dict[str, Any]) -> None:
    wish = _mine(job_id, fence).values(**news).returning(Job.id)
    if session.execute(_without_sync(wish)).scalar_one_or_none() is None:
        raise _lost(job_id, fence)


def _without_sync(wish: Any) -> Any:
    """The statement alone: rows loaded in this session are read anew by whoever looks at them."""
    return wish.execution_options(synchronize_session=False)


def _lost(job_id: str, fence: int) -> LeaseLost:
    return LeaseLost(f"The job {job_id} is no longer this worker's (claim {fence}).", "Nothing was written; stop.")


def _has_ended_so(session: Session, job_id: str, fence: int, state: str) -> bool:
    is_same = select(Job.id).where(Job.id == job_id, Job.fence == fence, Job.state == state)
    return session.scalar(is_same) is not None


def _ended(state: str) -> dict[str, Any]:
    """What every row has in common that nobody works on any more."""
    common = {"state": state, "owner": "", "lease_until": None, "stop_requested": "", **_NO_ETA}
    if state == "queued":
        return common | {"sent_at": None}
    return common | {"finished_at": None if state == "paused" else time.time()}


def _keep_metrics(session: Session, job_id: str, metrics: Iterable[tuple[str, int, float]]) -> None:
    # The newest value of a step stands. Numbers that are not finite have no place in a curve, or in JSON.
    points = {(name[:160], step): value for name, step, value in metrics if math.isfinite(value)}
    keys = list(points)
    for start in range(0, len(keys), _BATCH):
        some = keys[start : start + _BATCH]
        old = delete(Metric).where(Metric.job_id == job_id, tuple_(Metric.name, Metric.step).in_(some))
        session.execute(_without_sync(old))
        rows = [{"job_id": job_id, "name": n, "step": s, "value": points[n, s]} for n, s in some]
        session.execute(insert(Metric), rows)


# what nobody works on -----------------------------------------------------------------------------


def expire(session: Session, now: float, max_attempts: int) -> list[str]:
    """Takes back the jobs of workers that fell silent; gives their ids. Fails what can never start."""
    silent = select(Job).where(Job.state == "running", Job.lease_until < now).order_by(Job.id)
    taken = list(session.scalars(_for_update(silent)))
    for job in taken:
        _take_back(session, job, max_attempts)
    worn_out = select(Job).where(Job.state == "queued", Job.attempt >= max_attempts).order_by(Job.id)
    for job in session.scalars(_for_update(worn_out)):
        _fail(session, job, f"The job stopped without a word {job.attempt} times.", _LOOK)
    end_waiting(session)
    return [job.id for job in taken]


def end_waiting(session: Session) -> None:
    """Ends queued jobs as the one ended that they wait for, failed or cancelled, and so on down the line.

    What waits for one of each has failed.
    """
    before = aliased(Job)
    hopeless = (
        select(Job, before.title, before.state)
        .join(JobDependency, JobDependency.job_id == Job.id)
        .join(before, before.id == JobDependency.after_id)
        .where(Job.state == "queued", before.state.in_(["failed", "cancelled"]))
        .order_by(Job.id, before.state.desc())
    )
    while found := session.execute(_for_update(hopeless, of=Job)).all():
        for job, title, state in found:
            if job.state == "queued":  # else it waits for several, and has ended already
                _end(session, job, state, f"The job “{title}” that it waits for is {state}.", f"Try “{title}” again.")


def waits() -> ColumnElement[bool]:
    """Whether a job waits for another that is not done."""
    before = aliased(Job)
    unfinished = exists().where(
        JobDependency.job_id == Job.id, before.id == JobDependency.after_id, before.state != "done"
    )
    return unfinished.correlate(Job)


def _take_back(session: Session, job: Job, max_attempts: int) -> None:
    if job.stop_requested:
        state = "cancelled" if job.stop_requested == "cancel" else "paused"
        _set(job, _ended(state))
        add_event(session, job.id, f"{state.capitalize()}: its worker fell silent after it was asked to stop.")
    elif not (begins_anew := has_progressed(session, job.id)) and job.attempt >= max_attempts:
        _fail(session, job, f"The job stopped without a word {job.attempt} times.", _LOOK)
    else:
        _set(job, _ended("queued") | ({"attempt": 0} if begins_anew else {}))
        add_event(session, job.id, "Back in the queue: its worker fell silent.")


def _fail(session: Session, job: Job, error: str, next_step: str) -> None:
    _end(session, job, "failed", error, next_step)


def _end(session: Session, job: Job, state: str, error: str, next_step: str) -> None:
    _set(job, _ended(state) | {"error": error, "next_step": next_step, "failure": None})
    add_event(session, job.id, f"{state.capitalize()}: {error}")


def _set(job: Job, news: dict[str, Any]) -> None:
    for name, value in news.items():
        setattr(job, name, value)


def _for_update(wish: Any, of: Any = None) -> Any:
    """The same rows, locked until the transaction ends (SQLite's writers are alone anyway), read anew."""
    return wish.with_for_update(of=of).execution_options(populate_existing=True)


def add_event(
    session: Session,
    job_id: str,
    message: str,
    attempt: int | None = None,
    *,
    kind: str | None = None,
    data: dict[str, Any] | None = None,
) -> None:
    """Adds an event to a job's history: a message for people; `kind` and `data` hold what the code reads again."""
    session.flush()
    now_at: Any = attempt if attempt is not None else select(Job.attempt).where(Job.id == job_id).scalar_subquery()
    event = insert(JobEvent).values(job_id=job_id, at=time.time(), attempt=now_at)
    session.execute(event.values(message=plain(message), kind=kind, data=data))
