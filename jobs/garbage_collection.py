"""Moves files that no row refers to to the trash; refuses when the registry's rows seem to be missing."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.files import MANIFEST, former_pattern
from jobs.attempt.leftovers import jobs_with_leftovers, remove_leftovers_of
from jobs.probe.probe_run import probes_folder
from jobs.uploads import upload_id, uploads_folder
from workbench.kinds.kind import paths_read
from workbench.registry import database
from workbench.schema.job_states import UNFINISHED
from workbench.schema.job_tables import Job
from workbench.schema.tables import Corpus
from workbench.settings import Settings
from workbench.store import artifacts, ownership, rebuild, tombstones
from workbench.store.object_store import ARTIFACTS, CHECKPOINTS, LOGS
from workbench.store.rebuild import Rebuilt
from workbench.store.row_records import claim_unowned, refresh_records
from workbench.store.storage import StoredIds, get_storage, remove_leftovers
from workbench.store.trash import KEPT_SECONDS, Trash, Trashed

GRACE_SECONDS = 24 * 3600.0  # longer than any job needs from its last artifact to its row
UPLOAD_GRACE_SECONDS = 3600.0  # a form may stay open for a while before it is sent
SMALL_FILE_SECONDS = 30.0  # longer than it takes to write a record, an owner or a message
_ID = re.compile(r"[0-9a-f]{32}")


def jobs_trash(settings: Settings) -> Trash:
    """The trash for job folders; artifacts, which may be on another disk, have their own."""
    return Trash(settings.root / "trash")


def remove_all_leftovers(settings: Settings) -> list[Path]:
    """Removes what killed processes left behind, as far as it is known to be of no use; returns the former paths.

    These are leftovers of ended jobs, and small files that were never completed: records, owners, messages.
    """
    removed = []
    for job_id in sorted(jobs_with_leftovers(settings)):
        removed += remove_leftovers_of(settings, job_id)
    storage, queue = get_storage(settings), settings.root / "queue"
    for folder in (storage.folder, storage.records.folder, queue):
        removed += remove_leftovers(folder, SMALL_FILE_SECONDS)
    for taken in queue.glob(former_pattern()):  # read by a worker that died with it; the row brings the job back
        with suppress(FileNotFoundError):
            if taken.stat().st_mtime < time.time() - SMALL_FILE_SECONDS:
                taken.unlink()
                removed.append(taken)
    return removed


def sweep(settings: Settings) -> list[Path]:
    """Moves artifacts and job folders without a row to the trash, and deletes old entries of the trash.

    Returns the former paths of what it moved.

    Deletes uploads that no unfinished job reads. Raises RegistryMismatchError, and removes nothing, when the artifacts
    belong to another registry, or too many of them have no row; artifacts that have a row are recorded first, so that
    sweeps of the other registry leave them.
    """
    # Listed before the rows are read, so that folders made in between are not in the list.
    jobs = set(_old(settings.jobs_folder, GRACE_SECONDS))
    uploads = set(_old(uploads_folder(settings.root), UPLOAD_GRACE_SECONDS))
    storage, begin = get_storage(settings), partial(database.transaction, settings)
    claim_unowned(begin, storage)
    with begin() as session:
        state = ownership.state_of(session, storage)
        refused = ownership.refusal(state, storage)
        if refused is None:
            moved = artifacts.sweep(session, storage, GRACE_SECONDS)
        known = {settings.jobs_folder / job_id for job_id in session.scalars(select(Job.id))}
        unfinished = select(Job.spec).where(Job.state.in_(UNFINISHED))  # also of kinds that are not installed
        waiting = {Path(path) for spec in session.scalars(unfinished) for path in paths_read(spec)}
        named = named_sources(session)
    if refused is not None:
        with suppress(OSError):  # only those without a record: an older registry's rows must not replace newer ones
            refresh_records(begin, storage, state.known - storage.records.ids())
        raise refused
    for folder in sorted(jobs - known):
        with suppress(FileNotFoundError):  # another process may sweep at the same time
            jobs_trash(settings).put(folder, "job")
            moved.append(folder)
    _delete_uploads(settings, uploads, waiting, named)
    for folder in _old(probes_folder(settings), UPLOAD_GRACE_SECONDS):  # of a server that was killed
        shutil.rmtree(folder, ignore_errors=True)
    empty_trashes(settings)
    refresh_records(begin, storage, state.known)
    storage.forget_records()
    return moved


def sweep_store(settings: Settings, kept_seconds: float = KEPT_SECONDS) -> list[str]:
    """Removes from the shared store what the registry knows that nothing needs; returns the names of it.

    These are deleted artifacts after that many seconds; artifacts without a row of jobs that are done or deleted, and
    their checkpoints; logs of deleted jobs; and what killed uploads left a day ago.
    """
    storage = get_storage(settings)
    if (store := storage.shared) is None:
        return []
    with database.reading(settings) as session:
        ended = tombstones.of_ended_jobs(session)  # before the store is listed: they upload nothing more
    removed, stored = store.remove_unfinished(GRACE_SECONDS), storage.stored_ids()
    with database.reading(settings) as session:
        garbage = tombstones.garbage(session, stored, kept_seconds)
        logs = tombstones.of_deleted_jobs(session, stored.logs)
    kept = set()
    for id in sorted(garbage):
        with database.reading(settings) as session:
            only = StoredIds(stored.artifacts & {id}, stored.checkpoints & {id})
            is_restored = not tombstones.garbage(session, only, kept_seconds)  # by somebody, meanwhile
        if is_restored:
            kept.add(id)
            continue
        both = ((ARTIFACTS, stored.artifacts), (CHECKPOINTS, stored.checkpoints))
        names = [f"{folder}/{id}" for folder, ids in both if id in ids]
        for name in names:
            store.remove(f"{name}/{MANIFEST}")  # the first to go: without it the rest is not an artifact
            store.remove(name)
        removed += names
    for id in sorted(logs):
        store.remove(f"{LOGS}/{id}")
        removed.append(f"{LOGS}/{id}")
    with database.transaction(settings) as session:
        tombstones.forget(session, ended - kept)
    return removed


def trash_entries(settings: Settings) -> list[Trashed]:
    """The entries of both trashes, of artifacts and jobs, the oldest first."""
    both = [*get_storage(settings).trash.entries(), *jobs_trash(settings).entries()]
    return sorted(both, key=lambda entry: entry.at)


def restore(settings: Settings, entries: Sequence[Trashed]) -> Rebuilt:
    """Restores entries of the trash, and recreates their rows; reports those left in the trash."""
    report = Rebuilt()
    if deleted := [entry for entry in entries if entry.kind == "artifact"]:  # first: it may be refused
        storage = get_storage(settings)
        with database.transaction(settings) as session:
            report = rebuild.restore(session, storage, deleted)
        if storage.shared is not None:  # from which they may have been removed
            list(storage.upload_missing([entry.id for entry in deleted]))
    folders = [entry for entry in entries if entry.kind == "job"]
    report.left += rebuild.restore_entries(jobs_trash(settings), folders, settings.jobs_folder)[1]
    return report


def empty_trashes(settings: Settings, older_than_seconds: float = KEPT_SECONDS) -> tuple[int, int]:
    """Permanently deletes entries of at least that age; returns the number of folders and bytes deleted."""
    before = {entry.path: entry.size_bytes for entry in trash_entries(settings) if entry.is_older(older_than_seconds)}
    gone = [*get_storage(settings).empty_trash(older_than_seconds), *jobs_trash(settings).empty(older_than_seconds)]
    return len(gone), sum(before.get(entry.path, 0) for entry in gone)


def _delete_uploads(settings: Settings, uploads: set[Path], waiting: set[Path], named: set[str]) -> None:
    wanted, named_ids = {upload_id(path) for path in waiting}, {upload_id(Path(source)) for source in named}
    for folder in sorted(uploads):
        if folder.name not in wanted:
            shutil.rmtree(folder, ignore_errors=True)
    for names in uploads_folder(settings.root).glob("*.json"):
        if not names.with_suffix("").exists() and names.stem not in named_ids:
            names.unlink(missing_ok=True)


def _old(folder: Path, seconds: float) -> Iterator[Path]:
    """Folders named by an id that were not changed for a while; nothing else may be removed."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if _ID.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
            with suppress(FileNotFoundError):  # it is in use
                if max(file.lstat().st_mtime for file in (path, *path.iterdir())) < time.time() - seconds:
                    yield path


def named_sources(session: Session) -> set[str]:
    """The paths that any job or corpus refers to."""
    read = {path for spec in session.scalars(select(Job.spec)) for path in paths_read(spec)}
    return read | set(session.scalars(select(Corpus.source)))
