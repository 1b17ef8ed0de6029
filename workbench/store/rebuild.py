"""Rebuilds the rows of a lost or older registry from the records next to the artifacts and from their files.

Existing rows are not changed, and no row is made twice. Only jobs that are recorded as done become done. Of machines
with a shared store each rebuilds what it recorded; what one that came before called deleted does not return.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Table, delete, event, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from workbench.errors import StorageError
from workbench.schema.base import Base
from workbench.schema.job_tables import Job, JobEvent
from workbench.schema.names import choose_look, free_name
from workbench.schema.tables import Artifact, Expert
from workbench.specs.gates import upgraded_gate
from workbench.store import ownership, tombstones
from workbench.store.artifact_files import rows_of_files
from workbench.store.row_records import OWNERS, Rows, write_records
from workbench.store.storage import Storage
from workbench.store.trash import Trash, Trashed

RowType = TypeVar("RowType", bound=Mapping[str, Any])
_THINGS = {mapper.class_.__tablename__: mapper.class_.noun for mapper in Base.registry.mappers}
_OWNERS = {table.__tablename__ for table in OWNERS}


@dataclass(frozen=True)
class Left:
    """Something that was not rebuilt, or not completely, and why."""

    thing: str
    name: str
    why: str


@dataclass
class Rebuilt:
    """The numbers of rebuilt rows by type, the number of artifacts that have rows now, and what was left out."""

    made: dict[str, int] = field(default_factory=dict)
    num_known: int = 0
    left: list[Left] = field(default_factory=list)


def rebuild(
    session: Session, storage: Storage, *, dry_run: bool = False, only: Collection[str] | None = None
) -> Rebuilt:
    """Rebuilds the rows of all artifacts without rows, or of `only` these; a dry run is rolled back.

    If the registry knows most artifacts afterwards, it becomes their owner (not with `only`).
    """
    with session.begin_nested() as savepoint:
        if storage.shared is not None:
            tombstones.note_recorded_deletions(session, storage)
        rebuilder = _Rebuilder(session, storage)
        rebuilder.run(only)
        tombstones.forget(session, rebuilder.artifact_ids)
        if dry_run:
            savepoint.rollback()
        else:
            write_records(session, storage, rebuilder.artifact_ids)
    if only is None and not dry_run:
        _take_over(session, storage)
    return rebuilder.report


def restore(session: Session, storage: Storage, entries: Collection[Trashed]) -> Rebuilt:
    """Restores artifacts from the trash, experts with their base, and rebuilds their rows.

    What cannot be moved is reported. Raises RegistryMismatchError when the artifacts belong to another registry.
    """
    if (refused := ownership.refusal(ownership.state_of(session, storage), storage)) is not None and entries:
        raise refused
    moved, left = restore_entries(storage.trash, _with_bases(storage, entries), storage.folder)
    tombstones.forget(session, moved)
    for id in moved:
        storage.records.clear_deleted(id)
    report = rebuild(session, storage, only=moved)
    report.left += left
    return report


def restore_entries(trash: Trash, entries: Collection[Trashed], folder: Path) -> tuple[list[str], list[Left]]:
    """Moves entries of the trash back into a folder, the newest for each id; returns moved ids and what was left.

    Raises StorageError when there is only one entry and it cannot be moved.
    """
    moved, left = [], []
    for entry in sorted(entries, key=lambda entry: entry.at, reverse=True):
        try:
            trash.restore(entry, folder / entry.id)
            moved.append(entry.id)
        except StorageError as error:
            if len(entries) == 1:
                raise
            left.append(Left(entry.kind, entry.id, f"left in the trash: {error.problem}"))
    return moved, left


def name_of(storage: Storage, artifact_id: str) -> str:
    """The name of an artifact's owner in the registry, such as the expert; empty if unknown."""
    rows = (storage.records.read(artifact_id) or {}).get("rows", {})
    names = [
        f"{_THINGS[table]} {row['name']}" for table in sorted(_OWNERS) for row in rows.get(table, ()) if "name" in row
    ]
    kinds = [str(row["kind"]) for row in rows.get("artifacts", ())]
    return ", ".join(names or kinds)


def _with_bases(storage: Storage, entries: Collection[Trashed]) -> list[Trashed]:
    in_trash = {entry.id: entry for entry in storage.trash.entries()}
    given = {entry.id for entry in entries}
    bases: set[str] = set()
    for entry in entries:
        record = storage.records.read(entry.id) or {}
        bases |= {row["base_id"] for row in record.get("rows", {}).get("experts", ())}
    stored = {id for id in bases if storage.place(id).exists()}
    return [*entries, *(in_trash[id] for id in sorted(bases - given - stored) if id in in_trash)]


def _take_over(session: Session, storage: Storage) -> None:
    state = ownership.state_of(session, storage)
    if len(state.known) >= len(state.missing) + len(state.unrecorded):
        write_records(session, storage, state.known - storage.records.ids())
        registry_id = ownership.registry_id(session)
        event.listen(
            session, "after_commit", lambda _: storage.set_owner(registry_id, replace=True), once=True
        )  # only once its rows are committed


class _Rebuilder:
    """One rebuild: reads the rows of artifacts, inserts missing ones, and reports."""

    def __init__(self, session: Session, storage: Storage) -> None:
        self.report = Rebuilt()
        self.artifact_ids: set[str] = set()
        self._session = session
        self._storage = storage
        self._keys: dict[str, set[tuple[str, ...]]] = {}  # primary keys of existing rows, by table
        self._names: dict[str, set[str]] = {}

    def run(self, only: Collection[str] | None) -> None:
        state = ownership.state_of(self._session, self._storage)
        unknown = state.missing | state.unrecorded
        rows_by_artifact = self._read(sorted(unknown if only is None else unknown.intersection(only)))
        merged: dict[str, dict[tuple[str, ...], dict[str, Any]]] = {}
        for rows in rows_by_artifact.values():
            for name, some in rows.items():
                for row in some:
                    merged.setdefault(name, {}).setdefault(_key(name, row), row)
        for table in Base.metadata.sorted_tables:  # what is referred to comes first
            for row in parents_first(table, merged.get(table.name, {}).values()):
                self._insert(table, row)
        self._drop_unused(rows_by_artifact)
        self._end_jobs(rows_by_artifact)
        self.report.num_known = len(state.known) + len(self.artifact_ids)

    def _read(self, ids: Iterable[str]) -> dict[str, Rows]:
        rows_by_artifact: dict[str, Rows] = {}
        by_sha256: dict[str, str] = {}
        for id in ids:
            try:
                rows_by_artifact[id] = self._rows_of(id, by_sha256)
            except (StorageError, ValueError) as error:
                self._leave("artifact", id, getattr(error, "problem", str(error)))
        return rows_by_artifact

    def _rows_of(self, id: str, by_sha256: dict[str, str]) -> Rows:
        sha256, size_bytes = self._storage.describe(id)
        record = self._storage.records.read(id)
        if record is not None and "rows" in record:
            recorded: Rows = record["rows"]
            if recorded["artifacts"][0]["sha256"] != sha256:
                raise ValueError("its manifest is not the one that was recorded")
            return recorded
        if self._storage.owner() is not None:  # then everything that ever had a row has a record
            raise ValueError("it was never registered: an unfinished job left it")
        if not by_sha256:
            by_sha256 |= self._hashes()
        folder = self._storage.place(id)
        kind, recorded = rows_of_files(folder, by_sha256)
        artifact = {"id": id, "kind": kind, "sha256": sha256, "size_bytes": size_bytes}
        return {"artifacts": [{**artifact, "created_at": folder.stat().st_mtime}], **recorded}

    def _hashes(self) -> dict[str, str]:
        ids_by_hash = {}
        for id in self._storage.ids():
            try:
                ids_by_hash[self._storage.describe(id)[0]] = id
            except StorageError:  # an incomplete folder cannot be a base
                continue
        return ids_by_hash

    def _insert(self, table: Table, values: Mapping[str, Any]) -> None:
        row = {column.name: values[column.name] for column in table.columns if column.name in values}
        if table.name == "mixtures":
            row["gate"] = upgraded_gate(row["gate"])
        if table.name == "experts":
            self._complete_look(row)
        thing, name = _THINGS[table.name], str(values.get("name") or values.get("title") or values.get("id") or "")
        if (key := _key(table.name, row)) in self._keys_of(table):
            return
        if not self._clear_references(table, row, thing, name):
            return
        self._rename_if_taken(table, row, thing)
        try:
            with self._session.begin_nested():
                self._session.execute(insert(table).values(row))
        except IntegrityError:
            self._leave(thing, name, "the registry has another one in its place")
            return
        self._keys_of(table).add(key)
        if table.name in self._names:
            self._names[table.name].add(row["name"])
        self.report.made[thing] = self.report.made.get(thing, 0) + 1
        if table.name == "artifacts":
            self.artifact_ids.add(row["id"])

    def _clear_references(self, table: Table, row: dict[str, Any], thing: str, name: str) -> bool:
        """Clears references to missing rows; False when the row needs one of them."""
        for column in table.columns:
            for key in column.foreign_keys:
                value, other = row.get(column.name), key.column.table
                if value is None or (value,) in self._keys_of(other):
                    continue
                if not column.nullable:
                    self._leave(thing, name, f"its {_THINGS[other.name]} is missing")
                    return False
                row[column.name] = None
                if other.name not in ("jobs", "clusterings"):
                    self._leave(thing, name, f"rebuilt, but its {_THINGS[other.name]} is missing")
        return True

    def _complete_look(self, row: dict[str, Any]) -> None:
        """Keeps the recorded colour and mark, unless there are none, or another expert has got the mark since."""
        number, mark = choose_look(self._session, row["name"])
        row.setdefault("colour_number", number)
        if self._session.scalar(select(Expert.id).where(Expert.mark == row.setdefault("mark", mark))) is not None:
            row["mark"] = mark

    def _rename_if_taken(self, table: Table, row: dict[str, Any], thing: str) -> None:
        name = table.columns.get("name")
        if name is None or table.name == "clusters":
            return
        if table.name not in self._names:
            self._names[table.name] = set(self._session.scalars(select(name)))
        free = free_name(row["name"], ".", self._names[table.name])
        if free != row["name"]:
            self._leave(thing, row["name"], f"rebuilt as “{free}”, because the name is taken")
            row["name"] = free

    def _drop_unused(self, rows_by_artifact: Mapping[str, Rows]) -> None:
        """Deletes the rows of artifacts without an owner: a row would protect them from sweeps for ever."""
        for id in sorted(self.artifact_ids):
            owners = [(table, row) for table in _OWNERS for row in rows_by_artifact[id].get(table, ())]
            if owners and not any((row["id"],) in self._keys_of(Base.metadata.tables[table]) for table, row in owners):
                self._session.execute(delete(Artifact).where(Artifact.id == id))
                self.artifact_ids.discard(id)
                self.report.made["artifact"] -= 1

    def _end_jobs(self, rows_by_artifact: Mapping[str, Rows]) -> None:
        """Marks jobs as done that an older registry still has to run: a second run would find its results there."""
        recorded = {row["id"]: row for id in sorted(self.artifact_ids) for row in rows_by_artifact[id].get("jobs", ())}
        columns = set(Job.__table__.columns.keys()) - {"id", "priority", "fence"}
        for job_id, row in recorded.items():
            job = self._session.get(Job, job_id)
            if job is None or job.state == "done":
                continue
            for name in columns.intersection(row):
                setattr(job, name, row[name])
            message = "Done: its results were recorded after the registry was backed up."
            self._session.add(JobEvent(job_id=job_id, attempt=job.attempt, message=message))
            self.report.made["job"] = self.report.made.get("job", 0) + 1

    def _keys_of(self, table: Table) -> set[tuple[str, ...]]:
        if table.name not in self._keys:
            rows = self._session.execute(select(*table.primary_key))
            self._keys[table.name] = {tuple(row) for row in rows}
        return self._keys[table.name]

    def _leave(self, thing: str, name: str, why: str) -> None:
        self.report.left.append(Left(thing, name, why))


def _key(table: str, row: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(row[column.name]) for column in Base.metadata.tables[table].primary_key)


def parents_first(table: Table, rows: Iterable[RowType]) -> Iterator[RowType]:
    """The rows, each after the one of the same table that it refers to, such as an expert after its parent."""
    references = [column.name for column in table.columns if column.references(table.c.id)] if "id" in table.c else []
    if not references:
        yield from rows
        return
    waiting = {row["id"]: row for row in rows}
    while waiting:
        ready = [row for row in waiting.values() if row.get(references[0]) not in waiting]
        assert ready, "no row is its own ancestor"
        yield from ready
        for row in ready:
            del waiting[row["id"]]
