"""Keeps the record of every artifact as its rows are: names, parents and settings outlive a lost registry.

`ChangedRows` is the one place that sees every transaction: no job and no service writes records itself.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import Any

from sqlalchemy import ColumnElement, Table, event, inspect, select
from sqlalchemy.orm import Session

from workbench.errors import StorageError
from workbench.records import Record
from workbench.services import stores
from workbench.storage import Storage
from workbench.tables import (
    Artifact,
    Base,
    Cluster,
    Clustering,
    Corpus,
    Domain,
    Evaluation,
    Expert,
    Job,
    Mixture,
    MixtureMember,
    Report,
    SeedModel,
)

OWNERS: tuple[type[Any], ...] = (Domain, SeedModel, Clustering, Expert, Evaluation, Report)  # each of one artifact
_RECORDED: tuple[type[Any], ...] = (Artifact, *OWNERS, Corpus, Cluster, Mixture, MixtureMember)
_FORMAT = 1
_AT_ONCE = 500

Rows = dict[str, list[dict[str, Any]]]  # by their table


class ChangedRows:
    """What a session changes, from its first statement on; `save` writes the records of the artifacts concerned."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._rows: list[Any] = []
        event.listen(session, "after_flush", self._note)

    def _note(self, session: Session, _context: object) -> None:
        changed = (*session.new, *session.dirty, *session.deleted)
        self._rows += [row for row in changed if isinstance(row, _RECORDED)]

    def save(self, storage: Storage) -> None:
        """To be called before the commit: a record without a row is put right by the next sweep, a row without one too.

        A disk that takes no record must not undo the work.
        """
        self._session.flush()
        if self._rows:
            ids = _artifact_ids(self._session, self._rows)
            with suppress(OSError):
                write_records(self._session, storage, ids)
            with suppress(OSError, StorageError):
                claim_unowned(self._session, storage)


def claim_unowned(session: Session, storage: Storage) -> None:
    """Makes this registry the owner of artifacts that have none, if it knows most of them; all get their records."""
    if storage.owner() is None and stores.refusal(stores.state_of(session, storage), storage) is None:
        write_records(session, storage, storage.ids() & set(session.scalars(select(Artifact.id))))
        storage.set_owner(stores.registry_id(session))


def write_records(session: Session, storage: Storage, artifact_ids: Collection[str]) -> None:
    """Writes the records of these artifacts; those whose row is gone are marked as deleted."""
    there = sorted(id for id in artifact_ids if storage.path(id).is_dir())
    for first in range(0, len(there), _AT_ONCE):
        some = there[first : first + _AT_ONCE]
        records = _records(session, some)
        for id in some:
            if id in records:
                storage.records.write(id, records[id])
            else:
                storage.records.mark_deleted(id, time.time())


# what a record says ----------------------------------------------------------------------------------


def _records(session: Session, ids: Collection[str]) -> dict[str, Record]:
    """What is to be written of each artifact that has a row."""
    registry_id = stores.registry_id(session)
    artifacts = _select(session, Artifact, Artifact.id.in_(ids))
    rows: dict[str, Rows] = {one["id"]: {"artifacts": [one]} for one in artifacts}
    for table, of_artifact in _belongings(session, ids):
        for artifact_id, row in of_artifact:
            found = rows[artifact_id].setdefault(table, [])
            if row not in found:
                found.append(row)
    return {id: {"format": _FORMAT, "registry_id": registry_id, "rows": told} for id, told in rows.items()}


def _belongings(session: Session, ids: Collection[str]) -> Iterator[tuple[str, Iterable[tuple[str, dict[str, Any]]]]]:
    """Every row that belongs to one of the artifacts, with the id of that one, by tables."""
    owners = {table: _select(session, table, table.artifact_id.in_(ids)) for table in OWNERS}
    for table, found in owners.items():
        yield table.__tablename__, [(row["artifact_id"], row) for row in found]
    experts, clusterings = ({row["id"]: row["artifact_id"] for row in owners[table]} for table in (Expert, Clustering))
    corpora = _by_id(session, Corpus, (row["corpus_id"] for row in owners[Domain]))
    yield "corpora", [(row["artifact_id"], corpora[row["corpus_id"]]) for row in owners[Domain]]
    clusters = _select(session, Cluster, Cluster.clustering_id.in_(clusterings))
    yield "clusters", [(clusterings[row["clustering_id"]], row) for row in clusters]
    members = _select(session, MixtureMember, MixtureMember.expert_id.in_(experts))
    mixtures = _by_id(session, Mixture, (row["mixture_id"] for row in members))
    yield "mixtures", [(experts[row["expert_id"]], mixtures[row["mixture_id"]]) for row in members]
    yield "mixture_members", [(experts[row["expert_id"]], row) for row in members]
    yield "jobs", _done_jobs(session, ids)


def _done_jobs(session: Session, ids: Collection[str]) -> list[tuple[str, dict[str, Any]]]:
    """The jobs that made artifacts; one that is not done yet will be in the record at the next refresh."""
    made_by = session.execute(select(Artifact.id, Artifact.job_id).where(Artifact.id.in_(ids))).tuples().all()
    jobs = _by_id(session, Job, (job_id for _, job_id in made_by if job_id))
    return [(id, jobs[job_id]) for id, job_id in made_by if job_id and jobs[job_id]["state"] == "done"]


def _by_id(session: Session, table: type[Any], ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in _select(session, table, table.id.in_(set(ids)))}


def _select(session: Session, table: type[Base], which: ColumnElement[bool]) -> list[dict[str, Any]]:
    """Rows as plain values; always as the database has them now."""
    columns = _table(table)
    found = session.execute(select(columns).where(which).order_by(*columns.primary_key)).mappings()
    return [dict(row) for row in found]


def _table(mapped: type[Base]) -> Table:
    return Base.metadata.tables[mapped.__tablename__]


# whose record a row is in ----------------------------------------------------------------------------


def _artifact_ids(session: Session, rows: Iterable[Any]) -> set[str]:
    """The artifacts whose records speak of these rows."""
    keys: dict[type[Any], set[tuple[str, ...]]] = {}
    for row in rows:
        if (key := inspect(row).identity) is not None:  # None: a savepoint took it back
            keys.setdefault(type(row), set()).add(key)
    found = {key[0] for key in keys.get(Artifact, ())}
    for table, some in keys.items():
        if table is not Artifact:
            found.update(
                session.scalars(_artifacts_of(table, [key[-1 if table is MixtureMember else 0] for key in some]))
            )
    return found - {None}


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
