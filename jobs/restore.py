"""Restores a workbench from a backup into an empty home: all files are compared before the home gets its name.

With PostgreSQL the rows go into its database, which must be empty, and the rest into the home. A backup may come from
anybody: only what `workbench backup` writes is taken from it, never a token or a message of the queue; users get in and
jobs go on only on request.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from pydantic import ValidationError
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from engine.files import MANIFEST, aside_of, faults_in
from jobs.backup import ARTIFACTS, CARD, JOBS, REGISTRY, UPLOADS, copy_tree, explaining_disk_errors, settings_of
from jobs.garbage_collection import named_sources
from jobs.uploads import upload_id
from workbench.answers.integrity import RestoredWorkbench, StoreCheck, WorkbenchBackup
from workbench.errors import StorageError
from workbench.integrity.check import See, check_store
from workbench.job_records import leases
from workbench.registry import backups, database
from workbench.registry.backups import copy_rows, has_rows
from workbench.schema.job_tables import Job
from workbench.schema.tables import Artifact, User
from workbench.settings import Settings
from workbench.store.storage import OWNER, RECORDS

_ID = "[0-9a-f]{32}"
_KNOWN = {  # what lies in each folder of a backup
    "": f"{re.escape(MANIFEST)}|{re.escape(CARD)}|{re.escape(REGISTRY)}",
    ARTIFACTS: f"{_ID}|{re.escape(OWNER)}",
    f"{ARTIFACTS}/{RECORDS}": rf"{_ID}\.json",
    JOBS: _ID,
    UPLOADS: rf"{_ID}(\.json)?",
}
_MARK = "restore"  # of the temporary folder: the next restoration of this home removes what a killed one left
_ANOTHER = "Take another backup, or keep what is undamaged with --keep-damaged."


def restore(
    settings: Settings,
    backup: Path,
    *,
    keep_damaged: bool = False,
    with_users: bool = False,
    with_jobs: bool = False,
    see: See = lambda *_: None,
) -> RestoredWorkbench:
    """Copies a backup into the home folder, which must be empty or absent.

    Users are left out unless `with_users`. Jobs that ran or waited are paused; `with_jobs` they wait in the queue.
    A server's database must also be empty or absent. Raises StorageError for a folder that is not a backup, or for a
    damaged one unless `keep_damaged`; then nothing was written.
    """
    backup = backup.expanduser().absolute()
    card = _read_card(backup)
    _require_empty(settings)
    aside = aside_of(settings.root, _MARK)
    shutil.rmtree(aside, ignore_errors=True)
    copy = settings_of(settings, aside)
    try:
        with explaining_disk_errors(settings.root):
            aside.mkdir(mode=0o700, parents=True)
            left_out = _copy_known(backup, aside)
        changed = _changed_files(aside)
        if changed and not (keep_damaged and REGISTRY not in " ".join(changed)):
            raise StorageError(f"The backup is damaged: {changed[0]}", _ANOTHER)
        for extra in (MANIFEST, CARD):
            (aside / extra).unlink(missing_ok=True)
        with _explaining_registry():
            _drop_programs(aside / REGISTRY)
            database.migrate(copy)  # a backup of an earlier version
            _rewrite_registry(copy, aside)
        num_users = 0 if with_users else _remove_users(copy)
        requeued, paused = _requeue(copy) if with_jobs else ([], _pause(copy))
        left_out += _remove_rowless(copy, aside)
        check = check_store(copy, see)
        known = {fault.id for fault in card.faulty}
        _require_undamaged(check, known, keep_damaged)
        with explaining_disk_errors(settings.root):
            _put_with_rows(settings, copy, aside)
    finally:
        database.close_engine(copy)
        shutil.rmtree(aside, ignore_errors=True)
    return RestoredWorkbench(
        home=str(settings.root),
        made_at=card.made_at,
        requeued=requeued,
        paused=paused,
        num_users_left_out=num_users,
        left_out=left_out,
        check=check,
    )


def _copy_known(backup: Path, aside: Path, inside: str = "") -> list[str]:
    """Copies what a backup has, by its name; returns the names of everything else."""
    left_out = []
    for path in sorted((backup / inside).iterdir()):
        name = f"{inside}/{path.name}" if inside else path.name
        if name in _KNOWN and path.is_dir() and not path.is_symlink():
            (aside / name).mkdir()
            left_out += _copy_known(backup, aside, name)
        elif re.fullmatch(_KNOWN[inside], path.name) and not path.is_symlink() and (inside or path.is_file()):
            copy_tree(path, aside / name)
        else:
            left_out.append(name)
    return left_out


def _remove_rowless(copy: Settings, aside: Path) -> list[str]:
    """Removes artifacts, their records, folders of jobs and uploads that no row of the registry names."""
    with database.reading(copy) as session:
        artifacts: set[str | None] = set(session.scalars(select(Artifact.id)))
        jobs: set[str | None] = set(session.scalars(select(Job.id)))
        uploads = {upload_id(Path(source)) for source in named_sources(session)}
    named: dict[str, set[str | None]] = {
        ARTIFACTS: {RECORDS, OWNER.removesuffix(".json"), *artifacts},
        f"{ARTIFACTS}/{RECORDS}": artifacts,
        JOBS: jobs,
        UPLOADS: uploads,
    }
    entries = [(folder, path) for folder in named for path in sorted((aside / folder).glob("*"))]
    rowless = [(folder, path) for folder, path in entries if path.name.removesuffix(".json") not in named[folder]]
    for _, path in rowless:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return [f"{folder}/{path.name}" for folder, path in rowless]


@contextmanager
def _explaining_registry() -> Iterator[None]:
    """Calls the registry of a backup damaged where its tables or rows are not those of a workbench."""
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error, LookupError, TypeError, ValueError, AssertionError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise StorageError(f"The backup's registry is damaged: {reason}", "Take another backup.") from None


def _drop_programs(registry: Path) -> None:
    """Drops triggers and views, which a file of somebody else may hold, before any statement could start them.

    Those of our own are in the tables into which the rows are copied.
    """
    with closing(sqlite3.connect(registry)) as file:
        file.execute("PRAGMA trusted_schema = OFF")
        programs = file.execute("SELECT type, name FROM sqlite_master WHERE type NOT IN ('table', 'index')").fetchall()
        for kind, name in sorted(programs):  # triggers first: those of a view go with it
            if kind in ("trigger", "view"):
                quoted = name.replace('"', '""')
                file.execute(f'DROP {kind} IF EXISTS "{quoted}"')
        file.commit()
        left = file.execute("SELECT name FROM sqlite_master WHERE type NOT IN ('table', 'index')").fetchall()
    if left:  # SQLite takes types and names in capitals also, which `DROP` does not find
        raise StorageError(
            f"The backup's registry is damaged: it holds {left[0][0]!r}, neither a table nor an index.",
            "Take another backup.",
        )


def _rewrite_registry(copy: Settings, aside: Path) -> None:
    """Writes the rows into tables of our own."""
    rows = aside / f"{REGISTRY}.rows"
    backups.copy_rows_into(copy, rows)
    database.close_engine(copy)
    for path in aside.glob(f"{REGISTRY}[-.]*"):  # of the file's journal, and copies from before the migration
        if path != rows:
            path.unlink()
    os.replace(rows, aside / REGISTRY)


def _remove_users(copy: Settings) -> int:
    with database.transaction(copy) as session:
        users = list(session.scalars(select(User)))
        for user in users:
            session.delete(user)
    return len(users)


def _pause(copy: Settings) -> list[str]:
    """Pauses jobs that would continue, or ends them as it was requested; gives the titles of the paused."""
    with database.transaction(copy) as session:
        active = list(session.scalars(select(Job).where(Job.state.in_(("queued", "running"))).order_by(Job.created_at)))
        for job in active:
            leases.stop_without_worker(session, job, "cancelled" if job.stop_requested == "cancel" else "paused")
        return [job.title for job in active if job.state == "paused"]


def _read_card(backup: Path) -> WorkbenchBackup:
    try:
        card = WorkbenchBackup.model_validate_json((backup / CARD).read_bytes())
    except (OSError, ValidationError):
        raise StorageError(
            f"{backup} is not a backup of a workbench.", "Give a folder of `workbench backup`."
        ) from None
    if card.version > database.VERSION:
        raise StorageError(
            f"{backup} is of the newer version {card.version}; this workbench knows {database.VERSION}.",
            "Install the newer workbench that made it.",
        )
    return card


def _require_empty(settings: Settings) -> None:
    if settings.database_url and backups.is_copied(settings):
        raise StorageError(
            "A backup is restored into a home folder, but WORKBENCH_DATABASE_URL names a file.",
            "Leave it out, or name a database of PostgreSQL.",
        )
    if settings.database_url and database.has_registry(settings):
        with database.reading(settings) as session:
            if has_rows(session.connection()):
                raise StorageError(
                    "The database of WORKBENCH_DATABASE_URL holds a registry already.", "Name an empty database."
                )
    for folder in (settings.root, settings.artifacts_folder):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise StorageError(f"{folder} is not empty.", "Set WORKBENCH_HOME to a folder that is empty or absent.")


def _changed_files(aside: Path) -> list[str]:
    """A sentence for each file that is not the one in the backup's manifest.

    Left out are artifacts, whose rows have the hash, and names that no backup has: those were not read.
    """
    sentences = []
    for name, fault in faults_in(aside):
        first, _, rest = name.partition("/")
        is_known = first in _KNOWN if rest else re.fullmatch(_KNOWN[""], first)
        if is_known and (first != ARTIFACTS or "records" in name):
            sentences.append(f"{name} {fault}")
    return sentences


def _require_undamaged(check: StoreCheck, known: set[str], keep_damaged: bool) -> None:
    """Raises StorageError for damage that the workbench did not have when the backup was made."""
    new = [fault for fault in check.faulty if fault.id not in known]
    if new and not keep_damaged:
        raise StorageError(f"The backup is damaged: {new[0].kind} {new[0].id}: {new[0].faults[0]}", _ANOTHER)
    if check.registry_faults:
        raise StorageError(f"The backup's registry is damaged: {check.registry_faults[0]}", "Take another backup.")


def _requeue(copy: Settings) -> tuple[list[str], list[str]]:
    """Returns jobs that ran during the backup to the queue, or ends them as it was requested; gives their titles."""
    with database.transaction(copy) as session:
        running = list(session.scalars(select(Job).where(Job.state == "running").order_by(Job.created_at)))
        waiting = []
        for job in running:
            if job.stop_requested:
                leases.finish(session, job.id, job.fence, "paused" if job.stop_requested == "pause" else "cancelled")
            else:
                leases.release(session, job.id, job.fence, "restored from a backup.", attempt_counts=False)
                waiting.append(job.title)
        paused = [job.title for job in running if job.state == "paused"]
        return waiting, paused


def _put_with_rows(settings: Settings, copy: Settings, aside: Path) -> None:
    """Gives the folder its name; with a server, in the transaction that brings the rows into its database."""
    if not settings.database_url:
        database.close_engine(copy)
        _put(settings, aside)
        return
    database.migrate(settings.model_copy(update={"home": aside}))
    with database.filling(settings) as target:
        with database.reading(copy) as session:
            copy_rows(session.connection(), target)
        database.close_engine(copy)
        (aside / REGISTRY).unlink()
        _put(settings, aside)


def _put(settings: Settings, aside: Path) -> None:
    """Gives the folder its name; artifacts that belong elsewhere come first."""
    artifacts = settings.artifacts_folder
    if not artifacts.is_relative_to(settings.root):
        elsewhere = aside_of(artifacts, _MARK)
        shutil.rmtree(elsewhere, ignore_errors=True)
        artifacts.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(aside / ARTIFACTS, elsewhere)
        elsewhere.chmod(0o700)
        os.replace(elsewhere, artifacts)  # an empty folder may be replaced
        shutil.rmtree(aside / ARTIFACTS)
    elif artifacts != settings.root / ARTIFACTS:
        target = aside / artifacts.relative_to(settings.root)
        target.parent.mkdir(parents=True, exist_ok=True)
        (aside / ARTIFACTS).rename(target)
    os.replace(aside, settings.root)
