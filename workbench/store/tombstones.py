"""Tombstones: what of a shared store the registry knows to be no artifact of its own any more, or not yet.

Machines that share a store have records and copies of their own. A tombstone in the registry says to each what another
one deleted. Only what has a tombstone, or is a checkpoint of a job that is done, is ever removed from the store: what
the registry merely does not know may be what an older backup of it lacks.

`job_id` is that of the job that makes an artifact, from its upload to its row; or, of a deleted job with checkpoints
or a log, its own id. It is None for an artifact that was deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from sqlalchemy import ColumnElement, and_, delete, exists, or_, select
from sqlalchemy.orm import Session

from workbench.schema import database_clock
from workbench.schema.job_tables import Job
from workbench.schema.tables import Artifact, Tombstone
from workbench.store.storage import Storage, StoredIds

_BATCH_SIZE = 200  # per transaction, which blocks other writers


def note_upload(session: Session, id: str, job_id: str) -> None:
    """Notes that a job uploads an artifact, or that checkpoints or the log of a deleted job may still be there."""
    session.merge(Tombstone(id=id, job_id=job_id, at=database_clock.now(session)))


def note_deleted(session: Session, ids: Iterable[str]) -> None:
    """Notes that these artifacts were deleted."""
    now = database_clock.now(session)
    for id in sorted(ids):
        session.merge(Tombstone(id=id, job_id=None, at=now))


def forget(session: Session, ids: Collection[str]) -> None:
    """Deletes the tombstones of artifacts that have a row from now on."""
    for some in batches(ids):
        session.execute(delete(Tombstone).where(Tombstone.id.in_(some)))


def deleted_among(session: Session, ids: Collection[str]) -> set[str]:
    """Which of these artifacts some machine deleted."""
    return among(session, Tombstone, ids, Tombstone.job_id.is_(None))


def unknown_among(session: Session, ids: Collection[str]) -> set[str]:
    """Which of these names of artifacts or jobs have neither a row nor a tombstone."""
    return set(ids).difference(*(among(session, table, ids) for table in (Artifact, Job, Tombstone)))


def note_recorded_deletions(session: Session, storage: Storage) -> None:
    """Notes what the records of this machine call deleted, for a registry that lost its tombstones."""
    deleted = {id for id in storage.records.ids() if not storage.records.is_live(id)}
    note_deleted(session, unknown_among(session, deleted))


def garbage(session: Session, stored: StoredIds, seconds: float) -> set[str]:
    """Which of these folders of the store, named by artifacts and jobs, nothing needs any more.

    Artifacts that were deleted that many seconds ago, unless a job runs that may have begun to read them before; those
    that a job made without a row, once it is done or deleted; and checkpoints of jobs that are done or deleted.
    """
    old = database_clock.now(session) - seconds
    reader = exists().where(Job.state == "running", Job.created_at <= Tombstone.at)
    is_deleted = and_(Tombstone.job_id.is_(None), Tombstone.at <= old, ~reader)
    has_row = exists().where(Artifact.id == Tombstone.id)
    removable = or_(is_deleted, _is_of_ended_job())
    done = among(session, Job, stored.checkpoints, Job.state == "done")
    return done | among(session, Tombstone, stored.artifacts | stored.checkpoints, ~has_row, removable)


def of_deleted_jobs(session: Session, ids: Collection[str]) -> set[str]:
    """Which of these jobs were deleted, and noted so because something of theirs was still in the store."""
    has_row = exists().where(Job.id == Tombstone.id)
    return among(session, Tombstone, ids, Tombstone.job_id == Tombstone.id, ~has_row)


def of_ended_jobs(session: Session) -> set[str]:
    """The ids that jobs noted which cannot run again."""
    return set(session.scalars(select(Tombstone.id).where(_is_of_ended_job())))


def _is_of_ended_job() -> ColumnElement[bool]:
    """It names a job that cannot run again: one that is done, or has no row. A failed one may be retried."""
    may_run = exists().where(Job.id == Tombstone.job_id, Job.state != "done")
    return and_(Tombstone.job_id.is_not(None), ~may_run)


def among(
    session: Session, table: type[Artifact | Job | Tombstone], ids: Collection[str], *which: ColumnElement[bool]
) -> set[str]:
    """Those of these ids that rows of a table have, of the rows for which all conditions hold."""
    statement = select(table.id).where(*which)
    return {id for some in batches(ids) for id in session.scalars(statement.where(table.id.in_(some)))}


def batches(ids: Iterable[str]) -> Iterator[list[str]]:
    """Yields batches that are small enough for one query and one short transaction."""
    some = sorted(ids)
    for first in range(0, len(some), _BATCH_SIZE):
        yield some[first : first + _BATCH_SIZE]
