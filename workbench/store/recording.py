"""Keeps the record of every artifact as its rows are: names, parents and settings outlive a lost registry.

`ChangedRows` is the one place that sees every transaction: no job and no service writes records itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import Any

from sqlalchemy import ColumnElement, Table, event, inspect, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from engine.errors import Problem
from workbench.registry.tables import (
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
    RegistryIdentity,
    Report,
    SeedModel,
)
from workbench.store import stores
from workbench.store.records import Record
from workbench.store.storage import Storage

OWNERS: tuple[type[Any], ...] = (Domain, SeedModel, Clustering, Expert, Evaluation, Report)  # each of one artifact
_RECORDED: tuple[type[Any], ...] = (Artifact, *OWNERS, Corpus, Cluster, Mixture, MixtureMember)
_FORMAT = 1
_AT_ONCE = 200  # nobody else can write meanwhile

Begin = Callable[[], AbstractContextManager[Session]]  # a transaction that writes
Rows = dict[str, list[dict[str, Any]]]  # by their table


class ChangedRows:
    """What a session changes, from its first statement on; `save` writes the records of the artifacts concerned.

    A record says what was committed: it is written after the commit, from the rows as they are then. Only that an
    artifact was deleted is noted before. A process that dies in between leaves a record behind its rows, or such a
    note beside a row: the refresh with the next sweep puts both right, and no sweep takes what has a row.
    """

    def __init__(self) -> None:
        self._rows: list[Any] = []
        self._artifact_ids: set[str] = set()

    def watch(self, session: Session) -> None:
        """To be called before the first statement."""
        event.listen(session, "after_flush", self._note)

    def _note(self, session: Session, _context: object) -> None:
        changed = (*session.new, *session.dirty, *session.deleted)
        self._rows += [row for row in changed if isinstance(row, _RECORDED)]

    def prepare(self, session: Session, storage: Storage) -> None:
        """To be called before the commit: finds the artifacts concerned, and notes which of them are deleted."""
        session.flush()
        if self._rows:
            self._artifact_ids = _artifact_ids(session, self._rows)
            for id in self._artifact_ids - _with_rows(session, self._artifact_ids):
                with suppress(OSError):
                    _mark_deleted(storage, id)

    def save(self, begin: Begin, storage: Storage) -> None:
        """To be called after the commit, also after one that failed; the work is done, whatever goes wrong here."""
        if self._artifact_ids:
            with suppress(OSError, Problem, SQLAlchemyError):
                refresh_records(begin, storage, self._artifact_ids)
            with suppress(OSError, Problem, SQLAlchemyError):
                claim_unowned(begin, storage)


def claim_unowned(begin: Begin, storage: Storage) -> None:
    """Makes this registry the owner of artifacts that have none, if it knows most of them; all get their records.

    The id of the registry is committed before the artifacts name it.
    """
    if storage.owner() is not None:
        return
    with begin() as session:
        registry_id = stores.registry_id(session)
        state = stores.state_of(session, storage)
    if stores.refusal(state, storage) is None:
        refresh_records(begin, storage, state.known)
        storage.set_owner(registry_id)


def refresh_records(begin: Begin, storage: Storage, artifact_ids: Collection[str]) -> None:
    """Makes the records say what the rows say now, a few in each transaction; then raises what went wrong first."""
    errors = []
    for some in _portions(artifact_ids):
        try:
            with begin() as session:
                write_records(session, storage, some)
        except OSError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def write_records(session: Session, storage: Storage, artifact_ids: Collection[str]) -> None:
    """Writes the records of these artifacts; those whose row is gone are marked as deleted.

    Needs a transaction that writes. All records are tried before an OSError is raised.
    """
    # One at a time, until the commit: on PostgreSQL another could else write what it read before this one's rows came.
    stores.registry_id(session)
    session.execute(select(RegistryIdentity.id).with_for_update())
    errors = []
    for some in _portions(id for id in artifact_ids if storage.path(id).is_dir()):
        records = _records(session, some)
        for id in some:
            try:
                if id in records:
                    storage.records.write(id, records[id])
                elif storage.records.is_live(id):  # else no row of it was ever committed
                    _mark_deleted(storage, id)
            except OSError as error:
                errors.append(error)
    if errors:
        raise errors[0]


def _mark_deleted(storage: Storage, artifact_id: str) -> None:
    if storage.path(artifact_id).is_dir():
        storage.records.mark_deleted(artifact_id, time.time())


def _with_rows(session: Session, ids: Collection[str]) -> set[str]:
    return {id for some in _portions(ids) for id in session.scalars(select(Artifact.id).where(Artifact.id.in_(some)))}


def _portions(ids: Iterable[str]) -> Iterator[list[str]]:
    """So many at a time as one query may name and one transaction may hold up others."""
    some = sorted(ids)
    for first in range(0, len(some), _AT_ONCE):
        yield some[first : first + _AT_ONCE]


# what a record says ----------------------------------------------------------------------------------


def _records(session: Session, ids: Collection[str]) -> dict[str, Record]:
    """What is to be written of each artifact that has a row."""
    registry_id = stores.registry_id(session)
    artifacts = _select(session, Artifact, Artifact.id.in_(ids))
    rows: dict[str, Rows] = {one["id"]: {"artifacts": [one]} for one in artifacts}
    for table, of_artifact in _belongings(session, ids):
        for artifact_id, row in of_artifact:
            # None: others may add and delete rows between two queries, and will write the record anew.
            if row is not None and artifact_id in rows:
                found = rows[artifact_id].setdefault(table, [])
                if row not in found:
                    found.append(row)
    return {id: {"format": _FORMAT, "registry_id": registry_id, "rows": told} for id, told in rows.items()}


def _belongings(
    session: Session, ids: Collection[str]
) -> Iterator[tuple[str, Iterable[tuple[str, dict[str, Any] | None]]]]:
    """Every row that belongs to one of the artifacts, with the id of that one, by tables; None for one that is gone."""
    owners = {table: _select(session, table, table.artifact_id.in_(ids)) for table in OWNERS}
    for table, found in owners.items():
        yield table.__tablename__, [(row["artifact_id"], row) for row in found]
    experts, clusterings = ({row["id"]: row["artifact_id"] for row in owners[table]} for table in (Expert, Clustering))
    corpora = _by_id(session, Corpus, (row["corpus_id"] for row in owners[Domain]))
    yield "corpora", [(row["artifact_id"], corpora.get(row["corpus_id"])) for row in owners[Domain]]
    clusters = _select(session, Cluster, Cluster.clustering_id.in_(clusterings))
    yield "clusters", [(clusterings[row["clustering_id"]], row) for row in clusters]
    members = _select(session, MixtureMember, MixtureMember.expert_id.in_(experts))
    mixtures = _by_id(session, Mixture, (row["mixture_id"] for row in members))
    yield "mixtures", [(experts[row["expert_id"]], mixtures.get(row["mixture_id"])) for row in members]
    yield "mixture_members", [(experts[row["expert_id"]], row) for row in members]
    yield "jobs", _done_jobs(session, ids)


def _done_jobs(session: Session, ids: Collection[str]) -> list[tuple[str, dict[str, Any]]]:
    """The jobs that made artifacts; one that is not done yet will be in the record at the next refresh."""
    made_by = session.execute(select(Artifact.id, Artifact.job_id).where(Artifact.id.in_(ids))).tuples().all()
    jobs = _by_id(session, Job, (job_id for _, job_id in made_by if job_id))
    return [(id, job) for id, job_id in made_by if (job := jobs.get(job_id or "")) and job["state"] == "done"]


def _by_id(session: Session, table: type[Any], ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for some in _portions(set(ids)) for row in _select(session, table, table.id.in_(some))}


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
            for ids in _portions({key[-1 if table is MixtureMember else 0] for key in some}):
                found.update(session.scalars(_artifacts_of(table, ids)))
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
