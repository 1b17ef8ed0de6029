"""The door to jobs: submit one, stop it, try it again, watch it.

Each call is one transaction; then the broker is told. A broker that is away costs seconds and no job: the
reconciler tells it later.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Literal

from kombu.exceptions import ChannelError, ConnectionError, KombuError

from engine.events import Event
from jobs.attempt.attempt import follow, new_owner
from jobs.attempt.work import Claim
from jobs.queue.app import QUEUE, RUN, make_app
from workbench.errors import BadSpec, DiskFull, RegistryAway
from workbench.job_records import jobs as rows
from workbench.job_records import leases
from workbench.job_records.preconditions import validate_against_registry
from workbench.registry import database
from workbench.registry.cards import JobCard
from workbench.settings import Settings, get_settings
from workbench.spec_base import Spec
from workbench.specs import parse_spec
from workbench.store.storage import confine

ENDED = ("done", "failed", "cancelled")
ONCE_MORE = {"max_retries": 1, "interval_start": 0, "interval_step": 0, "interval_max": 0}


def submit(
    spec: Spec | dict[str, Any],
    *,
    after: Iterable[str] = (),
    priority: int = 0,
    title: str | None = None,
    settings: Settings | None = None,
) -> str:
    """The id of a new job: its row is committed, and a worker is called. Raises BadSpec for what cannot be granted."""
    settings = settings or get_settings()
    wish = _checked(spec)
    with database.transaction(settings) as session:
        validate_against_registry(session, wish)
        job_id = rows.create_job(session, wish, title=title, after=after, priority=priority)
    call_workers(settings, [job_id])
    return job_id


def run_now(
    spec: Spec | dict[str, Any], *, title: str | None = None, settings: Settings | None = None
) -> tuple[str, Iterator[Event]]:
    """The id of a new job that is this process's from the start, and its events: iterating does the work.

    No broker and no worker take part. See `jobs.attempt.attempt.follow` for how it ends.
    """
    settings = settings or get_settings()
    wish, owner = _checked(spec), new_owner()
    with database.transaction(settings) as session:
        validate_against_registry(session, wish)
        job_id = rows.create_job(session, wish, title=title)
        fence = leases.claim(session, job_id, owner, settings.lease_seconds, settings.max_attempts)
        assert fence is not None, "nobody else can see the row yet"
    return job_id, follow(Claim(job_id, fence, 1, owner), settings)


def keep_done(spec: Spec, result: dict[str, Any], *, settings: Settings | None = None) -> str:
    """The id of a job for what this process has done already, with its result."""
    settings = settings or get_settings()
    with database.transaction(settings) as session:
        job_id = rows.create_job(session, spec)
        fence = leases.claim(session, job_id, new_owner(), settings.lease_seconds, settings.max_attempts)
        assert fence is not None, "nobody else can see the row yet"
        leases.finish(session, job_id, fence, "done", result=result)
    return job_id


def request_stop(job_id: str, how: Literal["cancel", "pause"], *, settings: Settings | None = None) -> None:
    """Asks a job to stop. A running one has stopped when its state says so, within seconds."""
    with database.transaction(settings) as session:
        rows.request_stop(session, job_id, how)


def retry(job_id: str, *, settings: Settings | None = None) -> None:
    """Queues a failed or cancelled job again; it goes on from its last checkpoint."""
    settings = settings or get_settings()
    with database.transaction(settings) as session:
        rows.retry(session, job_id)
    call_workers(settings, [job_id])


def resume(job_id: str, *, settings: Settings | None = None) -> None:
    """Queues a paused job again; it goes on from its last checkpoint."""
    settings = settings or get_settings()
    with database.transaction(settings) as session:
        rows.resume(session, job_id)
    call_workers(settings, [job_id])


def delete(job_id: str, *, settings: Settings | None = None) -> bool:
    """Deletes an ended job with its log and checkpoints; False when its row stays because something names it."""
    settings = settings or get_settings()
    with database.transaction(settings) as session:
        has_gone = rows.delete_job(session, job_id)
        # Before the commit: until then nobody can start the job again. A folder that is left is swept.
        shutil.rmtree(confine(settings.jobs_folder, job_id), ignore_errors=True)
    return has_gone


def wait(job_id: str, poll: float = 0.5, *, settings: Settings | None = None) -> Iterator[JobCard]:
    """The job's card each time it changed, until it has ended or is paused."""
    last = None
    while True:
        with database.reading(settings) as session:
            card = rows.get_job(session, job_id)
        if card != last:
            yield card
        if card.state in (*ENDED, "paused"):
            return
        last = card
        time.sleep(poll)


def call_workers(settings: Settings, job_ids: Iterable[str]) -> bool:
    """Sends a hint for each job; False when the broker does not answer, then the reconciler tries again."""
    sent = []
    try:
        for job_id in job_ids:
            send(settings, job_id)
            sent.append(job_id)
    except (KombuError, ChannelError, ConnectionError, OSError):
        return False
    finally:
        # The job is safe without this note; without it the reconciler merely calls once more.
        with suppress(RegistryAway, DiskFull), database.transaction(settings) as session:
            rows.mark_sent(session, sent, time.time())
    return True


def send(settings: Settings, job_id: str) -> None:
    """Puts one hint into the broker; gives up within seconds."""
    make_app(settings).send_task(RUN, args=[job_id], queue=QUEUE, retry=True, retry_policy=ONCE_MORE)


def _checked(spec: Spec | dict[str, Any]) -> Spec:
    """The wish, validated as it will be read back from its row."""
    if not isinstance(spec, Spec | dict):
        raise BadSpec([f"A wish must be a spec, but is a {type(spec).__name__} instead."])
    checked: Spec = parse_spec(spec if isinstance(spec, dict) else spec.model_dump(mode="json"))
    return checked
