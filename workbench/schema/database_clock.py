"""The clock of the registry's database, by which leases are given and compared, and how their rows are written.

The machines' own clocks may disagree.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

_SECONDS = {
    "postgresql": text("SELECT extract(epoch FROM clock_timestamp())"),  # not now(): that stands still in a transaction
    "sqlite": text("SELECT (julianday('now') - 2440587.5) * 86400.0"),  # to a millisecond
}


def now(session: Session) -> float:
    """Seconds since 1970 by the database's clock."""
    connection = session.connection()
    return float(connection.scalar(_SECONDS[connection.dialect.name]))


def for_update(statement: Any, table: Any = None) -> Any:
    """The same rows, read again and locked until the transaction ends (SQLite has a single writer anyway)."""
    return statement.with_for_update(of=table).execution_options(populate_existing=True)


def without_sync(statement: Any) -> Any:
    """The statement without synchronizing rows that are loaded in the session."""
    return statement.execution_options(synchronize_session=False)
