"""The cards of jobs: what their rows hold, with what is computed: interruption, GPUs, and what a job waits for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, String, case, literal, select
from sqlalchemy.orm import Session

from workbench.answers.cards import DeviceCard, JobCard
from workbench.job_records.devices import list_devices, need_of, waits_for
from workbench.job_records.leases import has_expired, is_expired
from workbench.kinds.parse_spec import unreadable_reason
from workbench.schema import database_clock
from workbench.schema.job_states import ACTIVE, UPLOAD
from workbench.schema.tables import Job, JobDependency, JobEvent
from workbench.settings import get_settings


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
    return [_card(job, now, after=after[job.id], gpus=gpus[job.id], waits_for=reasons.get(job.id, "")) for job in jobs]


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
    for job in queued:
        if job.id in reasons:
            continue
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
    return {job_id: f"Waits for {_quote_titles(names)}." for job_id, names in titles.items()}


def _quote_titles(titles: Sequence[str]) -> str:
    more = f" and {len(titles) - 3} more" if len(titles) > 3 else ""
    return ", ".join(f"“{title}”" for title in titles[:3]) + more


def _upload_hosts(session: Session, queued: list[Job]) -> dict[str, str]:
    """With a shared store, the machines that received the files which these jobs read, by id of the job."""
    if not queued or not get_settings().store:
        return {}
    noted = select(JobEvent).where(JobEvent.kind == UPLOAD, JobEvent.job_id.in_([job.id for job in queued]))
    return {event.job_id: str((event.data or {}).get("host", "")) for event in session.scalars(noted)}


def _card(job: Job, now: float, **computed: Any) -> JobCard:
    return JobCard.from_fields(job, state="interrupted" if is_expired(job, now) else job.state, **computed)
