"""Submits, stops, retries and watches jobs.

Each call is one transaction, followed by a message to the broker. If the broker is away, no job is lost: the
scheduler sends the message later.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from kombu.exceptions import ChannelError, ConnectionError, KombuError
from sqlalchemy.orm import Session

from engine.events import Event
from jobs.attempt.attempt import follow, host_name, new_owner
from jobs.attempt.work import JobClaim
from jobs.queue.app import QUEUE, RUN, make_app
from jobs.uploads import is_elsewhere, upload_id
from workbench.answers.cards import JobCard
from workbench.errors import BadSpecError, DiskFullError, RegistryUnavailableError, StorageError
from workbench.job_records import jobs as rows
from workbench.job_records import leases
from workbench.job_records.preconditions import (
    RegistryForecast,
    creates,
    kind_of,
    validate_against_registry,
    without_aliases,
)
from workbench.kinds.kind import parse_spec
from workbench.registry import database
from workbench.schema import database_clock
from workbench.schema.job_states import STOPPED, UNSUCCESSFUL, UPLOAD
from workbench.settings import Settings, get_settings
from workbench.specs.base import Spec
from workbench.specs.requests import PlanStep
from workbench.store import tombstones
from workbench.store.object_store import LOGS, object_store
from workbench.store.storage import confine
from workbench.store.stored_checkpoints import StoredCheckpoints

ONE_RETRY = {"max_retries": 1, "interval_start": 0, "interval_step": 0, "interval_max": 0}


def submit(
    spec: Spec | dict[str, Any],
    *,
    after: Iterable[str] = (),
    priority: int = 0,
    title: str | None = None,
    settings: Settings | None = None,
) -> str:
    """Submits a job: commits its row, notifies a worker and returns its id. Raises BadSpecError for an invalid spec."""
    settings = settings or get_settings()
    with database.transaction(settings) as session:
        job_id, checked = _create(session, spec, title=title, after=after, priority=priority)
        path = kind_of(checked).reads(checked) if settings.store else ""
        if path and upload_id(Path(path)) and not is_elsewhere(path, settings):
            # for machines that share the store but not its home
            host = host_name()
            message = f"Its file was uploaded to “{host}”: a worker on that machine runs it."
            leases.add_event(session, job_id, message, kind=UPLOAD, data={"host": host})
    call_workers(settings, [job_id])
    return job_id


def submit_with_follow_up(spec: Spec, *, settings: Settings | None = None) -> str:
    """Submits a job and, if it is a training, the one that scores what it has made; returns the id of the first."""
    job_id = submit(spec, settings=settings)
    submit_follow_up(spec, job_id, settings=settings)
    return job_id


def submit_follow_up(spec: Spec, job_id: str, *, priority: int = 0, settings: Settings | None = None) -> str | None:
    """Submits the job that scores what a submitted training makes; returns its id, None for jobs without one."""
    follow_up = kind_of(spec).follow_up(spec)
    return submit(follow_up, after=[job_id], priority=priority, settings=settings) if follow_up else None


def _create(session: Session, spec: Spec | dict[str, Any], **options: Any) -> tuple[str, Spec]:
    """The id of a new job, and its spec after all checks. Raises BadSpecError."""
    if not isinstance(spec, Spec | dict):
        raise BadSpecError([f"Expected a job spec, got {type(spec).__name__}."])
    checked = without_aliases(session, spec if isinstance(spec, Spec) else parse_spec(spec))
    validate_against_registry(session, checked)
    return rows.create_job(session, checked, **options), checked


def _claim(session: Session, job_id: str, settings: Settings) -> JobClaim:
    """Claims a job that was just created."""
    owner = new_owner()
    fence = leases.claim(session, job_id, owner, settings.lease_seconds, settings.max_attempts)
    assert fence is not None, "no other process can see the row yet"
    return JobClaim(job_id, fence, 1, owner)


def run_now(
    spec: Spec | dict[str, Any], *, title: str | None = None, settings: Settings | None = None
) -> tuple[str, Iterator[Event]]:
    """The id of a new job that this process runs itself, and its events: iterating runs it.

    No broker or worker is involved. See `jobs.attempt.attempt.follow` for the end.
    """
    settings = settings or get_settings()
    with database.transaction(settings) as session:
        job_id, _ = _create(session, spec, title=title)
        claim = _claim(session, job_id, settings)
    return job_id, follow(claim, settings)


def keep_done(spec: Spec, result: dict[str, Any], *, settings: Settings | None = None) -> str:
    """Records work that this process has done already as a job with a result; returns the id."""
    settings = settings or get_settings()
    with database.transaction(settings) as session:
        job_id = rows.create_job(session, spec)
        leases.finish(session, job_id, _claim(session, job_id, settings).fence, "done", result=result)
    return job_id


def request_stop(job_id: str, how: Literal["cancel", "pause"], *, settings: Settings | None = None) -> None:
    """Requests a job to stop; a running job stops within seconds and then changes its state."""
    with database.transaction(settings) as session:
        rows.request_stop(session, job_id, how)


def retry(job_id: str, *, settings: Settings | None = None) -> None:
    """Queues a failed or cancelled job again; it continues from its last checkpoint."""
    settings = settings or get_settings()
    with database.transaction(settings) as session:
        rows.retry(session, job_id)
    call_workers(settings, [job_id])


def resume(job_id: str, *, settings: Settings | None = None) -> None:
    """Queues a paused job again; it continues from its last checkpoint."""
    settings = settings or get_settings()
    with database.transaction(settings) as session:
        rows.resume(session, job_id)
    call_workers(settings, [job_id])


def delete(job_id: str, *, settings: Settings | None = None) -> bool:
    """Deletes an ended job with its log and checkpoints; False when its row stays because something refers to it."""
    settings = settings or get_settings()
    with database.transaction(settings) as session:
        is_deleted = rows.delete_job(session, job_id)
        # Before the commit: until then the job cannot be started again. A folder that is left is swept.
        shutil.rmtree(confine(settings.jobs_folder, job_id), ignore_errors=True)
        if is_deleted and settings.store:  # where it does not answer, garbage collection removes them later
            tombstones.note_upload(session, job_id, job_id)
    if store := object_store(settings.store):
        with suppress(StorageError):
            StoredCheckpoints(store, job_id, 0).remove()
            store.remove(f"{LOGS}/{job_id}")
    return is_deleted


def wait(job_id: str, poll: float = 0.5, *, settings: Settings | None = None) -> Iterator[JobCard]:
    """Yields the job's card after each change, until it has ended or is paused."""
    last = None
    while True:
        with database.reading(settings) as session:
            card = rows.get_job(session, job_id)
        if card != last:
            yield card
        if card.state in STOPPED:
            return
        last = card
        time.sleep(poll)


def call_workers(settings: Settings, job_ids: Iterable[str]) -> bool:
    """Notifies workers of each job; False when the broker does not respond (the scheduler then tries again)."""
    sent = []
    try:
        for job_id in job_ids:
            make_app(settings).send_task(RUN, args=[job_id], queue=QUEUE, retry=True, retry_policy=ONE_RETRY)
            sent.append(job_id)
    except (KombuError, ChannelError, ConnectionError, OSError):
        return False
    finally:
        # Without this mark the scheduler only sends another message.
        with suppress(RegistryUnavailableError, DiskFullError), database.transaction(settings) as session:
            rows.mark_sent(session, sent, database_clock.now(session))
    return True


def submit_plan(steps: Callable[[Session], Sequence[PlanStep]], settings: Settings | None = None) -> list[str]:
    """Submits all jobs of a plan in one transaction, notifies the workers, and returns the jobs' ids.

    A plan is not stored. The job of each step is looked up by its spec, so submitting again continues: jobs that are
    done or in progress are kept, failed ones are retried, missing ones created. Raises BadSpecError when a needed name
    is taken.
    """
    settings = settings or get_settings()
    with database.transaction(settings) as session:
        plan = steps(session)
        ids = place(session, plan)
    call_workers(settings, [ids[step.key] for step in plan if not step.after])
    return list(ids.values())


def place(session: Session, steps: Sequence[PlanStep]) -> dict[str, str]:
    """The id of each step's job by its key, after it was found, retried or created."""
    ids: dict[str, str] = {}
    created: set[str] = set()
    forecast = RegistryForecast(session)
    for step, existing in zip(steps, rows.find_by_specs(session, [step.spec for step in steps]), strict=True):
        restarted = [ids[key] for key in step.after if key in created]
        things = creates(step.spec)
        # A done job is made again where its results are gone; one without named results, such as scores, where a job
        # that it needs is made again.
        if existing is None or (
            existing.state == "done" and (not all(map(forecast.holds, things)) if things else restarted)
        ):
            forecast.validate(step.spec)
            ids[step.key] = rows.create_job(session, step.spec, step.title, [ids[key] for key in step.after])
            forecast.expect(step.spec)
            created.add(step.key)
        else:
            ids[step.key] = existing.id
            rows.wait_for(session, existing.id, restarted)
            state = rows.get_job(session, existing.id).state
            if state == "paused":
                rows.resume(session, existing.id)
            elif state in UNSUCCESSFUL:
                rows.retry(session, existing.id)
            if state != "done":
                forecast.expect(step.spec)
    return ids
