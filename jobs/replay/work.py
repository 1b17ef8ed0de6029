"""A job's surroundings in its replay: those of a probe, with the names and text of the job itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.orm import Session

from jobs.probe.probe_work import ProbeWork
from workbench.names import Row


@dataclass(frozen=True)
class ReplayWork(ProbeWork):
    """The work of a finished job, done again: it writes into `place` alone, and no row."""

    @property
    def log(self) -> Path:
        return self.place / "log.txt"

    @contextmanager
    def transaction(self) -> Iterator[Session]:  # type: ignore[override]
        """A session whose changes are dropped, such as that damaged tokens lose their row to be made again."""
        with self.reading() as session:
            yield session

    def ensure_free(self, session: Session, table: type[Row], what: str, name: str) -> None:
        """The names are taken by the results that are compared."""
