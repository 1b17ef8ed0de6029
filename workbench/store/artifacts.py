"""The rows of artifacts in storage."""

from __future__ import annotations

import time
from pathlib import Path

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from workbench.schema import database_clock
from workbench.schema.job_states import UNFINISHED
from workbench.schema.job_tables import Job
from workbench.schema.tables import Artifact, Evaluation
from workbench.store import tombstones
from workbench.store.storage import Storage


def register_artifact(
    session: Session, storage: Storage, id: str, kind: str, key: str | None = None, job_id: str | None = None
) -> Artifact:
    """Registers a stored folder; of two made for one key, returns the first one's row."""
    sha256, size_bytes = storage.describe(id)
    made = {"sha256": sha256, "size_bytes": size_bytes, "created_at": database_clock.now(session)}
    row = Artifact(id=id, kind=kind, key=key, job_id=job_id, **made)
    try:
        with session.begin_nested():
            session.add(row)
    except IntegrityError:
        first = find_artifact(session, key) if key else session.get(Artifact, id)
        if first is None:
            raise
        return first  # the folder of the other id has no row and will be swept
    if storage.shared is not None:
        tombstones.forget(session, [id])
    return row


def find_artifact(session: Session, key: str) -> Artifact | None:
    """The row of the artifact made for a key, such as `tokens:<domain id>:<tokenizer hash>`."""
    return session.scalar(select(Artifact).where(Artifact.key == key))


def known_ids(session: Session) -> set[str]:
    """The ids of all artifacts with a row."""
    return set(session.scalars(select(Artifact.id)))


def forget_made_from(session: Session, id: str) -> None:
    """Deletes the rows of reproducible artifacts that were made from the object with this id."""
    for row in session.scalars(select(Artifact).where(Artifact.key.contains(id))):
        session.delete(row)


def forget_scores(session: Session, which: ColumnElement[bool]) -> None:
    """Deletes evaluations with their scores, which can be computed again."""
    for row in session.scalars(select(Evaluation).where(which)).all():
        session.delete(row)
        session.flush()
        if session.scalar(select(Evaluation.id).where(Evaluation.artifact_id == row.artifact_id).limit(1)) is None:
            session.delete(session.get_one(Artifact, row.artifact_id))


def sweep(session: Session, storage: Storage, grace_seconds: float) -> list[Path]:
    """Moves folders without a row to the trash; returns their former paths. Needs a write transaction.

    A folder stays while it is younger than the grace period, or than an unfinished job, which may have made it and
    registers it only at its end. Copies of what another machine deleted also count as deleted here.
    """
    oldest = session.scalar(select(func.min(Job.created_at)).where(Job.state.in_(UNFINISHED)))
    if oldest is not None:
        grace_seconds = max(grace_seconds, time.time() - oldest)
    known = known_ids(session)
    for id in tombstones.deleted_among(session, storage.ids() - known):
        if storage.records.is_live(id):
            storage.records.mark_deleted(id, time.time())
    return storage.sweep(known, grace_seconds)
