"""Which waiting job a thread of this worker starts next: the most urgent one for which enough GPUs are free."""

from __future__ import annotations

import sys
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from sqlalchemy import select
from sqlalchemy.orm import Session

from jobs.uploads import is_elsewhere, with_uploads_here
from workbench.job_records import devices
from workbench.job_records import jobs as rows
from workbench.job_records.devices import DeviceNeed, DevicePool
from workbench.kinds.kind import paths_read, unreadable_reason
from workbench.registry import database
from workbench.schema import database_clock
from workbench.schema.job_tables import Job
from workbench.settings import Settings

_choosing = threading.Lock()
_chosen: dict[str, DeviceNeed] = {}  # ids of the jobs that threads of this worker have chosen, and what each takes
_unreadable: dict[str, str] = {}  # by id of a due job: why this version cannot read its spec; empty if it can
_pools: list[DevicePool] = []  # the GPUs of this worker, while it has some


@contextmanager
def leasing(pool: DevicePool) -> Iterator[None]:
    """The jobs that this process starts lease their GPUs from this pool."""
    _pools.append(pool)
    try:
        yield
    finally:
        _pools.remove(pool)


@contextmanager
def choose_job(settings: Settings, among: Collection[str] | None = None) -> Iterator[str | None]:
    """The most urgent waiting job that can start here and that no other thread of this worker has chosen."""
    with _choosing:
        with database.reading(settings) as session:
            due = rows.due(session, database_clock.now(session), resend_seconds=0)
            if among is None:
                ids = _with_readable_spec(session, _with_files_here(session, due, settings), settings)
            else:  # a command's own jobs, which fail with the reason where they cannot be read
                ids = [id for id in due if id in among]
            needs = rows.device_needs(session, ids, settings)
            if settings.launcher != "local":  # this worker takes what it starts on other machines, and nothing else
                needs = {id: need for id, need in needs.items() if need.is_required}
            free, pool = _free(session), _pool()
            there = devices.num_there(session, pool) if pool else 0
        job_id = next(iter(_startable(needs, free, there)), None)
        if job_id is not None:
            _chosen[job_id] = needs[job_id]
    try:
        yield job_id
    finally:
        if job_id is not None:
            _chosen.pop(job_id, None)


def _with_readable_spec(session: Session, ids: Sequence[str], settings: Settings) -> list[str]:
    """The jobs without those of a newer version or of a plug-in that is not installed here: they stay queued.

    Each is named once on stderr. A spec never changes, so it is parsed once.
    """
    for id in _unreadable.keys() - ids:
        del _unreadable[id]
    unknown = select(Job.id, Job.spec).where(Job.id.in_([id for id in ids if id not in _unreadable]))
    for id, spec in session.execute(unknown):
        _unreadable[id] = unreadable_reason(with_uploads_here(spec, settings))
        if _unreadable[id]:
            print(f"Job {id} stays queued. {_unreadable[id]}", file=sys.stderr, flush=True)
    return [id for id in ids if not _unreadable.get(id)]


def _with_files_here(session: Session, ids: Sequence[str], settings: Settings) -> list[str]:
    """The jobs without those whose uploaded files another machine has, which shares the store but not its home."""
    if not settings.store:
        return list(ids)
    specs = session.execute(select(Job.id, Job.spec).where(Job.id.in_(ids)))
    elsewhere = {id for id, spec in specs if any(is_elsewhere(path, settings) for path in paths_read(spec))}
    return [id for id in ids if id not in elsewhere]


def _pool() -> DevicePool | None:
    return _pools[-1] if _pools else None


def _free(session: Session) -> dict[str, float]:
    """How much of each GPU is free and not meant for a job that this worker is about to start."""
    if (pool := _pool()) is None:
        return {}
    free, holders = devices.free_of(session, pool)
    for job_id, need in _chosen.items():
        for uuid in devices.choose_gpus(free, need) if need.count and job_id not in holders else ():
            free[uuid] -= need.share
    return free


def _startable(needs: Mapping[str, DeviceNeed], free: Mapping[str, float], there: int) -> Iterator[str]:
    """The ids of jobs that can start here, in the given order.

    A job for which too few GPUs are free keeps later ones from them, or it might wait forever; one that takes more than
    are there waits for another worker, or for a host that is lost.
    """
    pool = _pool()
    most, is_held_back = (len(pool.uuids) if pool else 0), False
    for job_id, need in needs.items():
        takes = need.count if most or need.is_required else 0
        if job_id in _chosen or (pool is not None and takes > min(most, there)):
            continue
        if pool is not None and takes:
            is_held_back = is_held_back or not devices.choose_gpus(free, need)
            if is_held_back:
                continue
        yield job_id


def gpu_options() -> list[str]:
    """The options of a runner that say which GPUs it may lease."""
    pool = _pool()
    return ["--gpus", ",".join(pool.uuids)] if pool and pool.uuids else []
