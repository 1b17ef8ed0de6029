"""Job records: create, list, stop, resume, retry and delete jobs.

What a worker does (claim, renew, record, finish) is in `leases`. Every change of a job adds an event.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from sqlalchemy import ColumnElement, String, and_, case, delete, func, literal, or_, select, update
from sqlalchemy.orm import Session

from workbench.access import audit
from workbench.answers.cards import DeviceCard, EventCard, JobCard, MetricPoint
from workbench.errors import BadSpecError, JobError, NotFoundError
from workbench.formatting.number_format import listed
from workbench.job_records.devices import DeviceNeed, list_devices, need_of, waits_for
from workbench.job_records.leases import add_event, end_waiting, has_expired, is_expired, stop_without_worker, waits
from workbench.job_records.preconditions import advice_on, settled
from workbench.kinds.kind import kind_named, parse_spec, unreadable_reason
from workbench.registry.database import plain
from workbench.schema import database_clock
from workbench.schema.job_states import ACTIVE, UNFINISHED, UNSUCCESSFUL, UPLOAD, Ending, ShownState
from workbench.schema.job_tables import Job, JobDependency, JobEvent, Metric
from workbench.schema.tables import Artifact, Clustering, Corpus, Evaluation, Expert, Report, SeedModel
from workbench.settings import Settings, get_settings
from workbench.specs.base import Spec

StopRequest = Literal["cancel", "pause"]
NEWEST = 200  # jobs in a list, unless a limit is given


def create_job(
    session: Session, spec: Spec, title: str | None = None, after: Iterable[str] = (), priority: int = 0
) -> str:
    """Creates a queued job that starts once the jobs `after` are done, and returns its id."""
    notes, spec = advice_on(session, spec), settled(session, spec)
    stored = spec.model_dump(mode="json")
    before = [_row(session, job_id) for job_id in dict.fromkeys(after)]
    job = Job(kind=stored["kind"], title=plain(title or title_of(spec))[:300], spec=stored, priority=priority)
    session.add(job)
    session.flush()
    session.add_all(JobDependency(job_id=job.id, after_id=row.id) for row in before)
    add_event(session, job.id, "Queued.")
    for note in notes:
        add_event(session, job.id, note)
    if any(row.state in UNSUCCESSFUL for row in before):
        end_waiting(session)
    return job.id


def wait_for(session: Session, job_id: str, after: Iterable[str]) -> None:
    """Adds dependencies to a job that has not started."""
    present = set(session.scalars(select(JobDependency.after_id).where(JobDependency.job_id == job_id)))
    session.add_all(JobDependency(job_id=job_id, after_id=id) for id in dict.fromkeys(after) if id not in present)
    session.flush()


def title_of(spec: Spec) -> str:
    """The default title of a job, such as *Train expert law*."""
    fields = spec.model_dump()
    subject = next((fields[name] for name in _SUBJECTS if fields.get(name)), "")
    return f"{kind_named(fields['kind']).title} {subject}".strip()


_SUBJECTS = ("name", "expert", "mixture", "clustering")  # fields of specs


def request_stop(session: Session, job_id: str, how: StopRequest) -> None:
    """Requests a running job to stop; a job without a worker stops immediately. Repeating it is harmless."""
    job = _row(session, job_id, lock=True)
    final: Ending = "cancelled" if how == "cancel" else "paused"
    if job.state == final:
        return
    if job.state not in UNFINISHED:
        raise _wrong_state(job, "unfinished", f"to {how} it")
    audit.record(session, how, job.kind, job.title)
    if job.state != "running" or is_expired(job, database_clock.now(session)):
        stop_without_worker(session, job, final)
    elif job.stop_requested != "cancel":  # a pause does not take a cancel back
        job.stop_requested = how
        add_event(session, job_id, f"{how.capitalize()} requested.")


def resume(session: Session, job_id: str) -> None:
    """Queues a paused job again; it continues from its last checkpoint."""
    job = _row(session, job_id, lock=True)
    if job.state != "paused":
        raise _wrong_state(job, "paused", "to resume it")
    audit.record(session, "resume", job.kind, job.title)
    _queue_again(session, job, "Resumed.")


def retry(session: Session, job_id: str) -> None:
    """Queues a failed or cancelled job again, with the jobs that ended only because they waited for it."""
    job = _row(session, job_id, lock=True)
    if job.state not in UNSUCCESSFUL:
        raise _wrong_state(job, "failed or cancelled", "to retry it")
    if before := _titles_failed_before(session, job_id):
        raise JobError(
            f"The job depends on “{before[0]}”, which has not succeeded.",
            f"Retry “{before[0]}” first.",
        )
    audit.record(session, "retry", job.kind, job.title)
    _queue_again(session, job, "Retried.")
    for waiting_id in _ids_ended_in_queue(session, job_id):
        is_queued = _row(session, waiting_id).state == "queued"  # through another job that waited for this one
        if not is_queued and not _titles_failed_before(session, waiting_id):
            retry(session, waiting_id)


def set_priority(session: Session, job_id: str, priority: int) -> None:
    """Sets a job's priority (default 0): queued jobs of higher priority start first; running jobs are not affected."""
    job = _row(session, job_id, lock=True)
    if job.state not in UNFINISHED:
        raise _wrong_state(job, "unfinished", "to change its priority")
    audit.record(session, "change", job.kind, job.title, f"priority {priority}")
    job.priority = priority
    add_event(session, job_id, f"Its priority is {priority} now.")


def delete_job(session: Session, job_id: str) -> bool:
    """Deletes an ended job with its events and metrics; the caller removes its files before the commit.

    Returns False and keeps the row while one of its results, or a job that waited for it, refers to it.
    """
    job = _row(session, job_id, lock=True)
    if job.state in UNFINISHED:
        raise JobError(f"The job is {job.state}; only an ended job can be deleted.", "Cancel it first.")
    audit.record(session, "delete", job.kind, job.title, f"job {job_id}")
    if _is_named(session, job_id):
        add_event(session, job_id, "Its log and checkpoints were deleted.")
        return False
    for table in (JobEvent, Metric, JobDependency):
        session.execute(delete(table).where(table.job_id == job_id))
    session.delete(job)
    return True


def _is_named(session: Session, job_id: str) -> bool:
    columns = (
        JobDependency.after_id,
        *(table.job_id for table in (Artifact, Corpus, Clustering, SeedModel, Expert, Evaluation, Report)),
    )
    return any(session.scalar(select(column).where(column == job_id).limit(1)) for column in columns)


def _row(session: Session, job_id: str, lock: bool = False) -> Job:
    job = session.get(Job, job_id, populate_existing=True, with_for_update=lock)
    if job is None:
        known = session.scalars(select(Job.id).order_by(Job.created_at.desc()).limit(12))
        raise NotFoundError("job", job_id, known)
    return job


_ALTERNATIVES = {
    "queued": "It is in the queue already.",
    "running": "Wait until it has stopped.",
    "paused": "Resume it instead, with `workbench job resume {id}` or on its page.",
    "failed": "Retry it instead, with `workbench job retry {id}` or on its page.",
    "cancelled": "Retry it instead, with `workbench job retry {id}` or on its page.",
    "done": "Submit a new job instead.",
}


def _wrong_state(job: Job, wanted: str, purpose: str) -> JobError:
    problem = f"The job is {job.state}; it must be {wanted} {purpose}."
    return JobError(problem, _ALTERNATIVES[job.state].format(id=job.id))


def _queue_again(session: Session, job: Job, message: str) -> None:
    job.state, job.stop_requested, job.error, job.next_step = "queued", "", "", ""
    job.failure = None
    job.attempt, job.sent_at, job.finished_at = 0, None, None  # a user's decision: all attempts are available again
    add_event(session, job.id, message)
    end_waiting(session)


def _titles_failed_before(session: Session, job_id: str) -> list[str]:
    statement = select(Job.title).join(JobDependency, JobDependency.after_id == Job.id)
    return list(session.scalars(statement.where(JobDependency.job_id == job_id, Job.state.in_(UNSUCCESSFUL))))


def _ids_ended_in_queue(session: Session, job_id: str) -> list[str]:
    statement = select(Job.id).join(JobDependency, JobDependency.job_id == Job.id)
    # A job that a user cancelled has no error.
    with_another = or_(Job.state == "failed", and_(Job.state == "cancelled", Job.error != ""))
    never_started = statement.where(JobDependency.after_id == job_id, with_another, Job.attempt == 0)
    return list(session.scalars(never_started))


def due(session: Session, now: float, resend_seconds: float | None = None) -> list[str]:
    """Ids of queued jobs that could start and were not sent to the broker recently, the most urgent first.

    Of equal ones the one that was asked for first; a job that was sent later than `now` was so before the clock was set
    back. `now` is of the database's clock.
    """
    if resend_seconds is None:
        resend_seconds = get_settings().reconcile_seconds
    statement = select(Job.id).where(Job.state == "queued", ~waits())
    statement = statement.where(or_(Job.sent_at.is_(None), Job.sent_at <= now - resend_seconds, Job.sent_at > now))
    first_event = select(func.min(JobEvent.id)).where(JobEvent.job_id == Job.id).correlate(Job).scalar_subquery()
    return list(session.scalars(statement.order_by(Job.priority.desc(), first_event, Job.id)))


def device_needs(session: Session, job_ids: Sequence[str], settings: Settings) -> dict[str, DeviceNeed]:
    """How many GPUs each of these jobs takes, by id and in their order."""
    rows = session.execute(select(Job.id, Job.kind, Job.spec).where(Job.id.in_(job_ids)))
    needs = {row.id: need_of(session, row.kind, row.spec, settings) for row in rows}
    return {job_id: needs[job_id] for job_id in job_ids if job_id in needs}


def mark_sent(session: Session, job_ids: Iterable[str], now: float) -> None:
    """Records that these jobs were sent to the broker."""
    statement = update(Job).where(Job.id.in_(list(job_ids)), Job.state == "queued").values(sent_at=now)
    session.execute(statement.execution_options(synchronize_session=False))


def get_job(session: Session, job_id: str) -> JobCard:
    """The card of one job."""
    return cards_of(session, [_row(session, job_id)])[0]


def get_jobs(session: Session, ids: Sequence[str]) -> list[JobCard]:
    """The cards of these jobs, in their order; deleted jobs are left out."""
    statement = select(Job).where(Job.id.in_(ids)).execution_options(populate_existing=True)
    cards = {card.id: card for card in cards_of(session, list(session.scalars(statement)))}
    return [cards[one] for one in ids if one in cards]


def jobs_after(session: Session, job_id: str) -> list[JobCard]:
    """The jobs that start only after this one, whatever their state, the oldest first."""
    statement = select(Job).join(JobDependency, JobDependency.job_id == Job.id)
    statement = statement.where(JobDependency.after_id == job_id).order_by(Job.created_at, Job.id)
    return cards_of(session, list(session.scalars(statement)))


def dependents(session: Session, job_id: str) -> list[str]:
    """The titles of the unfinished jobs that start only after this one."""
    statement = select(Job.title).join(JobDependency, JobDependency.job_id == Job.id)
    statement = statement.where(JobDependency.after_id == job_id, Job.state.in_(UNFINISHED))
    return list(session.scalars(statement.order_by(Job.created_at, Job.id)))


def find_by_specs(session: Session, specs: Sequence[Spec]) -> list[JobCard | None]:
    """The newest job with exactly each spec; None where there is none."""
    kinds = {spec.model_dump()["kind"] for spec in specs}
    statement = select(Job).where(Job.kind.in_(kinds)).order_by(Job.created_at, Job.id)
    newest = {_canonical_spec(job): job for job in session.scalars(statement)}
    jobs = [newest.get(spec.identity()) for spec in specs]
    cards = {card.id: card for card in cards_of(session, [job for job in jobs if job])}
    return [cards[job.id] if job else None for job in jobs]


def _canonical_spec(job: Job) -> str:
    """The spec of a job as JSON; a field added in a later version has its default."""
    try:
        return str(parse_spec(job.spec).identity())
    except BadSpecError:
        return ""


def list_jobs(
    session: Session,
    *,
    state: ShownState | Iterable[ShownState] | None = None,
    kind: str | None = None,
    limit: int = NEWEST,
    offset: int = 0,
) -> list[JobCard]:
    """The newest jobs, the newest first; `state` (or several) as a card shows it, `interrupted` included."""
    statement = select(Job).order_by(Job.created_at.desc(), Job.id).limit(limit).offset(offset)
    if kind is not None:
        statement = statement.where(Job.kind == kind)
    if state is not None:
        shown = shown_state(database_clock.now(session))
        statement = statement.where(shown.in_([state] if isinstance(state, str) else list(state)))
    return cards_of(session, list(session.scalars(statement.execution_options(populate_existing=True))))


def ids_from(session: Session, start: str, limit: int = 12) -> list[str]:
    """Ids of jobs that start with this text, the newest first."""
    statement = select(Job.id).where(Job.id.startswith(start, autoescape=True))
    return list(session.scalars(statement.order_by(Job.created_at.desc(), Job.id).limit(limit)))


def count_by_state(session: Session) -> dict[ShownState, int]:
    """The number of jobs in each state, as cards show it."""
    state = shown_state(database_clock.now(session)).label("shown")
    return {one.shown: one.num for one in session.execute(select(state, func.count().label("num")).group_by(state))}


def events(session: Session, job_id: str) -> list[EventCard]:
    """The events of a job, in order."""
    _row(session, job_id)
    rows = session.scalars(select(JobEvent).where(JobEvent.job_id == job_id).order_by(JobEvent.id))
    return [EventCard.from_fields(row) for row in rows]


def newest_event(session: Session, job_id: str, kind: str) -> EventCard | None:
    """The newest event of a job that has this kind."""
    statement = select(JobEvent).where(JobEvent.job_id == job_id, JobEvent.kind == kind)
    event = session.scalar(statement.order_by(JobEvent.id.desc()).limit(1))
    return EventCard.from_fields(event) if event else None


def metrics(session: Session, job_id: str, name: str | None = None) -> list[MetricPoint]:
    """The metrics of a job, by name and step."""
    _row(session, job_id)
    columns = select(Metric.name, Metric.step, Metric.value)  # a million points are not made objects of the session
    statement = columns.where(Metric.job_id == job_id)
    if name is not None:
        statement = statement.where(Metric.name == name)
    rows = session.execute(statement.order_by(Metric.name, Metric.step))
    return [MetricPoint.from_fields(row) for row in rows]


def shown_state(now: float) -> ColumnElement[str]:
    """The state of a job as its card shows it."""
    return case((has_expired(now), literal("interrupted", String)), else_=Job.state)


def cards_of(session: Session, jobs: Sequence[Job]) -> list[JobCard]:
    """The cards of these jobs, in their order."""
    now = database_clock.now(session)
    after: dict[str, list[str]] = {job.id: [] for job in jobs}
    statement = select(JobDependency).where(JobDependency.job_id.in_(list(after)))
    for dependency in session.scalars(statement.order_by(JobDependency.after_id)):
        after[dependency.job_id].append(dependency.after_id)
    gpus, devices = _gpus(session, jobs)
    reasons = _reasons(session, [job for job in jobs if job.state == "queued"], devices)
    return [
        JobCard.from_fields(
            job,
            state="interrupted" if is_expired(job, now) else job.state,
            after=after[job.id],
            gpus=gpus[job.id],
            waits_for=reasons.get(job.id, ""),
        )
        for job in jobs
    ]


def _gpus(session: Session, jobs: Sequence[Job]) -> tuple[dict[str, list[str]], list[DeviceCard]]:
    """The GPUs that each job has leased, by id, and all that there are where a job may wait for one."""
    leased: dict[str, list[str]] = {job.id: [] for job in jobs}
    devices = list_devices(session) if any(job.state in ACTIVE for job in jobs) else []
    for device in devices:
        for holder in device.holders:
            if holder.job_id in leased:
                part = "" if holder.share == 1 else f" ({holder.share:g} of it)"
                leased[holder.job_id].append(f"{device.host}/{device.number}{part}")
    return leased, devices


def _reasons(session: Session, queued: list[Job], devices: Sequence[DeviceCard]) -> dict[str, str]:
    """For which jobs, for which version's or machine's worker and for which GPUs queued jobs wait, by id.

    One that waits for other jobs does not wait for a worker or a GPU yet.
    """
    settings, hosts = get_settings(), _upload_hosts(session, queued)
    reasons = _dependency_reasons(session, [job.id for job in queued])
    for job in (one for one in queued if one.id not in reasons):
        host = f"Waits for a worker on “{hosts[job.id]}”, which received its file." if job.id in hosts else ""
        sentences = (
            unreadable_reason(job.spec),
            host,
            waits_for(need_of(session, job.kind, job.spec, settings), devices),
        )
        if reason := " ".join(filter(None, sentences)):
            reasons[job.id] = reason
    return reasons


def _dependency_reasons(session: Session, queued: Sequence[str]) -> dict[str, str]:
    """The titles of the jobs that these wait for, as a sentence by id; nothing for those that wait for none."""
    if not queued:
        return {}
    statement = select(JobDependency.job_id, Job.title).join(Job, JobDependency.after_id == Job.id)
    statement = statement.where(JobDependency.job_id.in_(queued), Job.state != "done")
    titles: dict[str, list[str]] = {}
    for job_id, title in session.execute(statement.order_by(Job.created_at, Job.id)):
        titles.setdefault(job_id, []).append(title)
    return {job_id: f"Waits for {listed([f'“{one}”' for one in some], 3)}." for job_id, some in titles.items()}


def _upload_hosts(session: Session, queued: list[Job]) -> dict[str, str]:
    """With a shared store, the machines that received the files which these jobs read, by id of the job."""
    if not queued or not get_settings().store:
        return {}
    noted = select(JobEvent).where(JobEvent.kind == UPLOAD, JobEvent.job_id.in_([job.id for job in queued]))
    return {event.job_id: str((event.data or {}).get("host", "")) for event in session.scalars(noted)}
