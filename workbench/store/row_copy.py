"""Copies all rows of a registry into an empty one, of the same version and on either database.

JSON goes through as text: what was stored is stored there, to the byte. The caller's transactions give the snapshot on
one side and all or nothing on the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
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
    insert,
    select,
    text,
)
from sqlalchemy.exc import DataError, IntegrityError

from workbench.errors import StorageError
from workbench.schema.tables import Base, RegistryIdentity

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
        statement, rows = _insertion(table, target), iter(_parents_first(table, _rows(source, table)))
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


def _parents_first(table: Table, rows: Iterator[Row]) -> Iterable[Row]:
    """The rows, each after the one of the same table that it refers to, such as an expert after its parent."""
    references = [column.name for column in table.columns if column.references(table.c.id)] if "id" in table.c else []
    return _after_referred(references[0], rows) if references else rows


def _after_referred(reference: str, rows: Iterator[Row]) -> Iterator[Row]:
    waiting = {row["id"]: row for row in rows}
    while waiting:
        ready = [row for row in waiting.values() if row[reference] not in waiting]
        assert ready, "no row is its own ancestor"
        yield from ready
        for row in ready:
            del waiting[row["id"]]


def _count_on(target: Connection) -> None:
    for table in Base.metadata.sorted_tables:
        if (column := table.autoincrement_column) is not None:
            last = f"(SELECT coalesce(max({column.name}), 0) + 1 FROM {table.name})"
            target.execute(
                text(f"SELECT setval(pg_get_serial_sequence('{table.name}', '{column.name}'), {last}, false)")
            )
