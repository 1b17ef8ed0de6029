"""Keeps the record of every artifact in step with its rows, so that names and settings outlive a lost registry.

`ChangedRows` sees every transaction: no job or service writes records itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import Any

from sqlalchemy import ColumnElement, event, inspect, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from engine.errors import Problem
from workbench.schema.base import Base
from workbench.schema.job_tables import Job
from workbench.schema.tables import (
    Artifact,
    Cluster,
    Clustering,
    Corpus,
    Domain,
    Evaluation,
    Expert,
    Mixture,
    MixtureMember,
    RegistryIdentity,
    Report,
    SeedModel,
)
from workbench.store import ownership, tombstones
from workbench.store.storage import Record, Storage

OWNERS: tuple[type[Any], ...] = (Domain, SeedModel, Clustering, Expert, Evaluation, Report)  # each of one artifact
_RECORDED: tuple[type[Any], ...] = (Artifact, *OWNERS, Corpus, Cluster, Mixture, MixtureMember)
_FORMAT = 1

Begin = Callable[[], AbstractContextManager[Session]]  # a transaction that writes
Rows = dict[str, list[dict[str, Any]]]  # by their table


class ChangedRows:
    """Collects the rows that a session changes; `save` writes the records of their artifacts.

    Records are written after the commit, from the committed rows. Only deletions are marked before. If a process dies
    in between, a record is outdated, or a deletion is marked although the row exists: the refresh with the next sweep
    corrects both, and no sweep removes an artifact that has a row.
    """

    def __init__(self) -> None:
        self._rows: list[Any] = []
        self._artifact_ids: set[str] = set()

    def watch(self, session: Session) -> None:
        """Starts recording changes; called before the first statement."""
        event.listen(session, "after_flush", self._note)

    def _note(self, session: Session, _context: object) -> None:
        changed = (*session.new, *session.dirty, *session.deleted)
        self._rows += [row for row in changed if isinstance(row, _RECORDED)]

    def prepare(self, session: Session, storage: Storage) -> None:
        """Collects the changed artifacts and marks deleted ones, also for other machines; called before the commit."""
        session.flush()
        if self._rows:
            self._artifact_ids = _artifact_ids(session, self._rows)
            deleted = self._artifact_ids - tombstones.among(session, Artifact, self._artifact_ids)
            if storage.shared is not None:
                tombstones.note_deleted(session, deleted)
            for id in deleted:
                with suppress(OSError):
                    _mark_deleted(storage, id)

    def save(self, begin: Begin, storage: Storage) -> None:
        """Writes the collected records; called after the commit, also after a failed one; errors are ignored."""
        if self._artifact_ids:
            with suppress(OSError, Problem, SQLAlchemyError):
                refresh_records(begin, storage, self._artifact_ids)
            with suppress(OSError, Problem, SQLAlchemyError):
                claim_unowned(begin, storage)


def claim_unowned(begin: Begin, storage: Storage) -> None:
    """Makes this registry the owner of artifacts without an owner, if it knows most of them, and writes records.

    The registry's id is committed before the artifacts refer to it.
    """
    if storage.owner() is not None:
        return
    with begin() as session:
        registry_id = ownership.registry_id(session)
        state = ownership.state_of(session, storage)
    if ownership.refusal(state, storage) is None:
        refresh_records(begin, storage, state.known)
        storage.set_owner(registry_id)


def refresh_records(begin: Begin, storage: Storage, artifact_ids: Collection[str]) -> None:
    """Rewrites records from the current rows, a few in each transaction; then raises the first error."""
    errors = []
    for some in tombstones.batches(artifact_ids):
        try:
            with begin() as session:
                write_records(session, storage, some)
        except OSError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def write_records(session: Session, storage: Storage, artifact_ids: Collection[str]) -> None:
    """Writes the records of these artifacts; those without a row are marked as deleted.

    Needs a write transaction. Tries all records before it raises an OSError.
    """
    # One writer at a time until the commit: on PostgreSQL another could otherwise write outdated rows.
    ownership.registry_id(session)
    session.execute(select(RegistryIdentity.id).with_for_update())
    errors = []
    for some in tombstones.batches(id for id in artifact_ids if storage.place(id).is_dir()):
        records = _records(session, some)
        for id in some:
            try:
                if id in records:
                    storage.records.write(id, records[id])
                elif storage.records.is_live(id):  # else no row was ever committed
                    _mark_deleted(storage, id)
            except OSError as error:
                errors.append(error)
    if errors:
        raise errors[0]


def _mark_deleted(storage: Storage, artifact_id: str) -> None:
    if storage.place(artifact_id).is_dir():
        storage.records.mark_deleted(artifact_id, time.time())


def _records(session: Session, ids: Collection[str]) -> dict[str, Record]:
    registry_id = ownership.registry_id(session)
    artifacts = _select(session, Artifact, Artifact.id.in_(ids))
    rows: dict[str, Rows] = {artifact["id"]: {"artifacts": [artifact]} for artifact in artifacts}
    for table, of_artifact in _belongings(session, ids):
        for artifact_id, row in of_artifact:
            # None: another process deleted the row between two queries, and will rewrite the record.
            if row is not None and artifact_id in rows:
                known_rows = rows[artifact_id].setdefault(table, [])
                if row not in known_rows:
                    known_rows.append(row)
    return {id: {"format": _FORMAT, "registry_id": registry_id, "rows": tables} for id, tables in rows.items()}


def _belongings(
    session: Session, ids: Collection[str]
) -> Iterator[tuple[str, Iterable[tuple[str, dict[str, Any] | None]]]]:
    """Every row that belongs to one of the artifacts, with the artifact's id, by table; None for a deleted row."""
    owners = {table: _select(session, table, table.artifact_id.in_(ids)) for table in OWNERS}
    for table, owned in owners.items():
        yield table.__tablename__, [(row["artifact_id"], row) for row in owned]
    experts, clusterings = ({row["id"]: row["artifact_id"] for row in owners[table]} for table in (Expert, Clustering))
    corpora = _by_id(session, Corpus, (row["corpus_id"] for row in owners[Domain]))
    yield "corpora", [(row["artifact_id"], corpora.get(row["corpus_id"])) for row in owners[Domain]]
    clusters = _select(session, Cluster, Cluster.clustering_id.in_(clusterings))
    yield "clusters", [(clusterings[row["clustering_id"]], row) for row in clusters]
    members = _select(session, MixtureMember, MixtureMember.expert_id.in_(experts))
    mixtures = _by_id(session, Mixture, (row["mixture_id"] for row in members))
    yield "mixtures", [(experts[row["expert_id"]], mixtures.get(row["mixture_id"])) for row in members]
    yield "mixture_members", [(experts[row["expert_id"]], row) for row in members]
    # A job that is not done yet is recorded at the next refresh.
    made_by = session.execute(select(Artifact.id, Artifact.job_id).where(Artifact.id.in_(ids))).tuples().all()
    jobs = _by_id(session, Job, (job_id for _, job_id in made_by if job_id))
    yield (
        "jobs",
        [(id, job) for id, job_id in made_by if (job := jobs.get(job_id or "")) and job["state"] == "done"],
    )


def _by_id(session: Session, table: type[Any], ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    return {
        row["id"]: row for some in tombstones.batches(set(ids)) for row in _select(session, table, table.id.in_(some))
    }


def _select(session: Session, table: type[Base], which: ColumnElement[bool]) -> list[dict[str, Any]]:
    columns = Base.metadata.tables[table.__tablename__]
    results = session.execute(select(columns).where(which).order_by(*columns.primary_key)).mappings()
    return [dict(row) for row in results]


def _artifact_ids(session: Session, rows: Iterable[Any]) -> set[str]:
    keys: dict[type[Any], set[tuple[str, ...]]] = {}
    for row in rows:
        if (key := inspect(row).identity) is not None:  # None: rolled back by a savepoint
            keys.setdefault(type(row), set()).add(key)
    artifact_ids = {key[0] for key in keys.get(Artifact, ())}
    for table, some in keys.items():
        if table is not Artifact:
            for ids in tombstones.batches({key[-1 if table is MixtureMember else 0] for key in some}):
                artifact_ids.update(session.scalars(_artifacts_of(table, ids)))
    return artifact_ids - {None}


def _artifacts_of(table: type[Any], ids: Collection[str]) -> Any:
    """A query for the ids of the artifacts that these rows belong to; a mixture's member goes by its expert's id."""
    if table is Corpus:
        return select(Domain.artifact_id).where(Domain.corpus_id.in_(ids))
    if table is Cluster:
        return select(Clustering.artifact_id).join(Cluster).where(Cluster.id.in_(ids))
    if table is Mixture:
        return select(Expert.artifact_id).join(MixtureMember).where(MixtureMember.mixture_id.in_(ids))
    if table is MixtureMember:
        return select(Expert.artifact_id).where(Expert.id.in_(ids))
    return select(table.artifact_id).where(table.id.in_(ids))
