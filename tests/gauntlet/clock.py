"""A clock of a program that can be set while it runs, as an administrator or a time server sets a machine's.

`time.time` goes wrong, and the clock of SQLite, which is the machine's; not that of PostgreSQL, which has its own, and
not those that count from the machine's start, which nobody can set.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sqlalchemy.orm import Session

from workbench.schema import database_clock

FILE = "GAUNTLET_CLOCK"  # the file that holds by how many seconds the clock is ahead


def install() -> None:
    """Makes this process go by its file; before anything else is imported that takes `time.time` for itself."""
    time.time = wrong_clock(Path(os.environ[FILE]), time.time)
    true_now = database_clock.now

    def now(session: Session) -> float:
        is_own = session.connection().dialect.name == "sqlite"
        return true_now(session) + (time.time() - machine_seconds() if is_own else 0)

    database_clock.now = now


def wrong_clock(file: Path, true: Callable[[], float]) -> Callable[[], float]:
    """The clock that is ahead by as many seconds as the file says, or right while there is none."""

    def clock() -> float:
        with suppress(FileNotFoundError):
            return true() + float(file.read_text())
        return true()

    return clock


def machine_seconds() -> float:
    """Seconds since 1970 by the machine's own clock."""
    return time.clock_gettime(time.CLOCK_REALTIME)


def set_clock(file: Path, seconds: float) -> None:
    """Sets the clock of the programs that go by this file so far ahead of the machine's (behind it, if negative)."""
    beside = file.with_suffix(".new")
    beside.write_text(str(seconds))
    beside.rename(file)
