"""Copies of the registry. Daily ones lie next to the artifacts: `backups/registry-ID-TIME.db`, for the last seven days.

A copy is an SQLite file, also of PostgreSQL: its rows are read in one snapshot. Daily copies are made of SQLite alone,
since a server of PostgreSQL has backups of its own.
"""

from __future__ import annotations

import re
import sqlite3
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path

from sqlalchemy import func, make_url, select, text

from engine.files import new_file
from workbench.registry import database
from workbench.schema.tables import Artifact
from workbench.settings import Settings
from workbench.store import ownership
from workbench.store.row_copy import copy_rows
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
        _write_copy(settings, path)
    remove_leftovers(backups_folder(settings))
    made = list_backups(settings, registry_id)
    for old in set(made) - set(_to_keep(made)):
        old.path.unlink(missing_ok=True)
    return made[0]


def _to_keep(made: list[Backup]) -> list[Backup]:
    """The newest backup of each of the newest seven days, and several of the newest day (manual backups)."""
    days = [list(some) for _, some in groupby(made, key=lambda backup: backup.at // EVERY_SECONDS)]
    return [*days[0][:NUM_KEPT], *(some[0] for some in days[1:NUM_KEPT])]


def _write_copy(settings: Settings, path: Path) -> None:
    """Copies the registry into a file that is complete or absent; only its owner may read it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with new_file(path, private=True) as aside:
        copy_registry(settings, aside)


def copy_registry(settings: Settings, path: Path) -> None:
    """Copies a snapshot of a registry into an SQLite file, also while it is written to."""
    if not is_copied(settings):
        copy_rows_into(settings, path)
        return
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
