"""Copies of the registry. Daily ones lie next to the artifacts: `backups/registry-ID-TIME.db`, for the last seven days.

A copy is an SQLite file, also of PostgreSQL: its rows are read in one snapshot. Daily copies are made of SQLite only,
since a server of PostgreSQL has backups of its own.

Rows are copied into an empty registry of the same version, on either database. JSON goes through as text: what was
stored is stored there, to the byte. The caller's transactions give the snapshot on one side and all or nothing on the
other.
"""

from __future__ import annotations

import math
import re
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from sqlalchemy import (
    JSON,
    Column,
    ColumnElement,
    Connection,
    Insert,
    Table,
    Text,
    bindparam,
    cast,
    func,
    insert,
    make_url,
    select,
    text,
)
from sqlalchemy.exc import DataError, IntegrityError

from engine.files import new_file
from workbench.errors import StorageError
from workbench.registry import database
from workbench.schema.base import Base
from workbench.schema.tables import Artifact, RegistryIdentity
from workbench.settings import Settings
from workbench.store import ownership
from workbench.store.rebuild import parents_first
from workbench.store.row_records import claim_unowned
from workbench.store.storage import get_storage, noticing_full_disk, remove_leftovers
from workbench.store.trash import STAMP, seconds_of, stamp_now

EVERY_SECONDS = 24 * 3600.0
NUM_KEPT = 7  # days, and the maximum of backups of the newest day
_NAME = re.compile(r"registry-(?P<id>[0-9a-f]{32})-" + STAMP + r"\.db")


@dataclass(frozen=True)
class Backup:
    """A copy of a registry, and when it was made (seconds since 1970)."""

    path: Path
    registry_id: str
    at: float


def backups_folder(settings: Settings) -> Path:
    return settings.artifacts_folder / "backups"


def is_copied(settings: Settings) -> bool:
    """True if this registry is an SQLite file, which is copied every day."""
    return make_url(settings.database).get_backend_name() == "sqlite"


def list_backups(settings: Settings, registry_id: str | None = None) -> list[Backup]:
    """The backups of a registry, or of all that used these artifacts, the newest first."""
    backups = []
    for path in backups_folder(settings).glob("registry-*.db"):
        if (name := _NAME.fullmatch(path.name)) and registry_id in (None, name["id"]):
            backups.append(Backup(path, name["id"], seconds_of(name["at"])))
    return sorted(backups, key=lambda backup: backup.at, reverse=True)


def back_up_daily(settings: Settings) -> Backup | None:
    """Makes a backup unless there is nothing to back up, or a recent one with more than half of the artifacts.

    So a first backup, taken when there was hardly anything, does not have to last for a day.
    """
    if not is_copied(settings):
        return None
    with database.reading(settings) as session:
        registry_id = ownership.find_registry_id(session)
        num_artifacts = session.scalar(select(func.count()).select_from(Artifact)) or 0
    newest = next(iter(list_backups(settings, registry_id)), None) if registry_id else None
    if newest is not None and time.time() - newest.at < EVERY_SECONDS and num_artifacts < 2 * _num_artifacts(newest):
        return None
    storage = get_storage(settings)
    return back_up(settings) if storage.ids() else None


def _num_artifacts(backup: Backup) -> int:
    """The number of artifacts that a backup knows, at least 1; also of one that cannot be read."""
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"{backup.path.as_uri()}?immutable=1", uri=True)) as copy:
        return max(1, int(copy.execute("SELECT count(*) FROM artifacts").fetchone()[0]))
    return 1


def back_up(settings: Settings) -> Backup:
    """Copies the registry now, and deletes old copies.

    Raises RegistryMismatchError when the registry seems to have lost rows: its copies would replace the good ones.
    """
    storage = get_storage(settings)
    claim_unowned(partial(database.transaction, settings), storage)
    with database.transaction(settings) as session:
        if (refused := ownership.refusal(ownership.state_of(session, storage), storage)) is not None:
            raise refused
        registry_id = ownership.registry_id(session)
    path = backups_folder(settings) / f"registry-{registry_id}-{stamp_now()}.db"
    with noticing_full_disk(settings.artifacts_folder):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with new_file(path, private=True) as aside:
            copy_registry(settings, aside)
    remove_leftovers(backups_folder(settings))
    made = list_backups(settings, registry_id)
    days = [list(some) for _, some in groupby(made, key=lambda backup: backup.at // EVERY_SECONDS)]
    # The newest of each of the newest days, and several of the newest day, when somebody made them by hand.
    for old in {*made} - {*days[0][:NUM_KEPT], *(some[0] for some in days[1:NUM_KEPT])}:
        old.path.unlink(missing_ok=True)
    return made[0]


def copy_registry(settings: Settings, path: Path) -> None:
    """Copies a snapshot of a registry into an SQLite file, also while it is written to."""
    if not is_copied(settings):
        return copy_rows_into(settings, path)
    file = make_url(settings.database).database or ""
    with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(path)) as copy:
        source.backup(copy)


def copy_rows_into(settings: Settings, path: Path) -> None:
    """Copies the rows of a registry, all of one snapshot, into a new SQLite file."""
    copy = settings.model_copy(update={"database_url": f"sqlite:///{path}"})
    database.create(copy)
    with database.reading(settings) as session, database.filling(copy) as target:
        copy_rows(session.connection(), target)


def size_of_registry(settings: Settings) -> int:
    """Bytes of the registry in its database."""
    if is_copied(settings):
        return Path(make_url(settings.database).database or "").stat().st_size
    with database.reading(settings) as session:
        return int(session.scalar(text("SELECT pg_database_size(current_database())")) or 0)


_SHOWN = 80  # characters of a key in an error
_BATCH_ROWS = 1000  # rows in memory, but for tables that refer to themselves
Row = dict[str, Any]


def has_rows(connection: Connection) -> bool:
    """Whether a registry holds more than the identity that its creation gave it."""
    tables = [table for table in Base.metadata.sorted_tables if table.name != RegistryIdentity.__tablename__]
    return any(connection.execute(select(*table.primary_key).limit(1)).first() for table in tables)


def copy_rows(source: Connection, target: Connection) -> int:
    """Copies every row and its identity, and returns their number. The target has no rows yet.

    Raises StorageError for a row that its database refuses: SQLite keeps texts and numbers of any length.
    """
    target.execute(RegistryIdentity.__table__.delete())  # type: ignore[attr-defined]
    copied = 0
    for table in Base.metadata.sorted_tables:
        statement, rows = _insertion(table, target), iter(parents_first(table, _rows(source, table)))
        while some := list(islice(rows, _BATCH_ROWS)):
            if not _fit(target, statement, some):
                _name_unfit(target, statement, table, some)
            copied += len(some)
    if target.dialect.name == "postgresql":
        _count_on(target)
    return copied


def _fit(target: Connection, statement: Insert, rows: Sequence[Row]) -> bool:
    """Inserts all rows, or none where the database refuses one."""
    try:
        with target.begin_nested():
            target.execute(statement, rows)
    except (DataError, IntegrityError):
        return False
    return True


def _name_unfit(target: Connection, statement: Insert, table: Table, rows: Sequence[Row]) -> None:
    for row in rows:
        try:
            with target.begin_nested():
                target.execute(statement, row)
        except (DataError, IntegrityError) as refused:
            keys = ", ".join(f"{column.name} {str(row[column.name])[:_SHOWN]}" for column in table.primary_key)
            message = str(refused.orig).partition("\n")[0]
            problem = f"The row with {keys} of the table {table.name} does not fit into {target.dialect.name}"
            problem += f" ({', '.join(_too_long(table, row)) or 'see its message'}): {message}."
            raise StorageError(problem, "Correct or delete it in the workbench, and take another backup.") from refused


def _too_long(table: Table, row: Row) -> list[str]:
    """The columns whose texts are longer than they may be, or hold the character that PostgreSQL does not take."""
    texts = {column: row[column.name] for column in table.columns if isinstance(row[column.name], str)}
    return [
        f"column {column.name}"
        for column, value in texts.items()
        if len(value) > (getattr(column.type, "length", None) or math.inf) or "\0" in value
    ]


def _rows(source: Connection, table: Table) -> Iterator[Row]:
    columns: list[ColumnElement[Any]] = [
        cast(column, Text).label(column.name) if _is_json(column) else column for column in table.columns
    ]
    rows = source.execution_options(yield_per=_BATCH_ROWS).execute(select(*columns))
    return (dict(row) for row in rows.mappings())


def _insertion(table: Table, target: Connection) -> Insert:
    values: dict[str, ColumnElement[Any]] = {}
    for column in table.columns:
        value = bindparam(column.name, type_=Text() if _is_json(column) else column.type)
        casts = _is_json(column) and target.dialect.name == "postgresql"
        values[column.name] = cast(value, JSON) if casts else value
    return insert(table).values(values)


def _is_json(column: Column[Any]) -> bool:
    return isinstance(column.type, JSON)


def _count_on(target: Connection) -> None:
    for table in Base.metadata.sorted_tables:
        if (column := table.autoincrement_column) is not None:
            last = f"(SELECT coalesce(max({column.name}), 0) + 1 FROM {table.name})"
            target.execute(
                text(f"SELECT setval(pg_get_serial_sequence('{table.name}', '{column.name}'), {last}, false)")
            )
