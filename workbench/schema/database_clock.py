"""The clock of the registry's database, by which leases are given and compared: the machines' own may disagree."""

from __future__ import annotations

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
