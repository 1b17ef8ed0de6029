"""Moves files that no row needs any more to the trash, never the reverse; a registry without its rows moves nothing."""

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

from workbench.registry import database
from workbench.registry.tables import Corpus, Job
from workbench.settings import Settings
from workbench.store import artifacts, rebuild, stores
from workbench.store.rebuild import Rebuilt
from workbench.store.recording import claim_unowned, refresh_records
from workbench.store.storage import get_storage
from workbench.store.trash import KEPT_SECONDS, Trash, Trashed

GRACE_SECONDS = 24 * 3600.0  # longer than any job takes from its last artifact to its row
UPLOAD_GRACE_SECONDS = 3600.0  # a form may be filled in for a while before it is sent
_ID = re.compile(r"[0-9a-f]{32}")


def uploads_folder(home: Path) -> Path:
    """What browsers sent, one folder for each selection of files, until its import is over."""
    return home / "uploads"


def names_file(folder: Path) -> Path:
    """Where it is noted what the files of an upload were called; it stays as long as something names the upload."""
    return folder.with_name(f"{folder.name}.json")


def jobs_trash(settings: Settings) -> Trash:
    """The trash for folders of jobs; artifacts, which may be on another disk, have their own."""
    return Trash(settings.root / "trash")


def sweep(settings: Settings) -> None:
    """Moves artifacts and folders of jobs without a row to the trash, and empties the trash of what is old.

    Uploads that no import waits for are deleted. Raises SweepRefused, and removes nothing, where the artifacts belong
    to another registry, or this one knows too little of what is there; what it does know is recorded first, so that the
    other one's sweeps leave it alone.
    """
    # Listed before the rows are read: what is made in between is not in the list.
    jobs = set(_old(settings.jobs_folder, GRACE_SECONDS))
    uploads = set(_old(uploads_folder(settings.root), UPLOAD_GRACE_SECONDS))
    storage, begin = get_storage(settings), partial(database.transaction, settings)
    claim_unowned(begin, storage)
    with begin() as session:
        state = stores.state_of(session, storage)
        refused = stores.refusal(state, storage)
        if refused is None:
            artifacts.sweep(session, storage, GRACE_SECONDS)
        known = {settings.jobs_folder / job_id for job_id in session.scalars(select(Job.id))}
        waiting = _waiting_imports(session)
        named = _named_sources(session)
    if refused is not None:
        with suppress(OSError):  # only what has no record: an older registry's rows must not replace newer ones
            refresh_records(begin, storage, state.known - storage.records.ids())
        raise refused
    for folder in sorted(jobs - known):
        with suppress(FileNotFoundError):  # another process sweeps, too
            jobs_trash(settings).put(folder, "job")
    _delete_uploads(settings, uploads, waiting, named)
    empty_trashes(settings)
    refresh_records(begin, storage, state.known)
    storage.forget_records()


def trashed(settings: Settings) -> list[Trashed]:
    """What is in the trash, of artifacts and of jobs, the oldest first."""
    both = [*get_storage(settings).trash.entries(), *jobs_trash(settings).entries()]
    return sorted(both, key=lambda one: one.at)


def restore(settings: Settings, entries: Sequence[Trashed]) -> Rebuilt:
    """Moves entries of the trash back to their places, and makes rows of what is known of them; some may be left."""
    report = Rebuilt()
    if found := [one for one in entries if one.kind == "artifact"]:  # first: it may be refused
        with database.transaction(settings) as session:
            report = rebuild.restore(session, get_storage(settings), found)
    folders = [one for one in entries if one.kind == "job"]
    report.left += rebuild.put_back(jobs_trash(settings), folders, settings.jobs_folder)[1]
    return report


def empty_trashes(settings: Settings, older_than_seconds: float = KEPT_SECONDS) -> tuple[int, int]:
    """Deletes for good what has been in the trash for that long; gives how many folders and bytes that were."""
    before = {one.path: one.size_bytes for one in trashed(settings) if one.is_older(older_than_seconds)}
    gone = [*get_storage(settings).empty_trash(older_than_seconds), *jobs_trash(settings).empty(older_than_seconds)]
    return len(gone), sum(before.get(one.path, 0) for one in gone)


def _delete_uploads(settings: Settings, uploads: set[Path], waiting: set[Path], named: set[str]) -> None:
    wanted = {folder for folder in uploads if any(folder in (path, *path.parents) for path in waiting)}
    for folder in sorted(uploads - wanted):
        shutil.rmtree(folder, ignore_errors=True)
    for names in uploads_folder(settings.root).glob("*.json"):
        if not names.with_suffix("").exists() and str(names.with_suffix("")) not in named:
            names.unlink(missing_ok=True)


def _old(folder: Path, seconds: float) -> Iterator[Path]:
    """What is called by an id and was not touched for a while: nothing else is ours to remove."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if _ID.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
            with suppress(FileNotFoundError):  # somebody is at work in it
                if max(one.lstat().st_mtime for one in (path, *path.iterdir())) < time.time() - seconds:
                    yield path


def _waiting_imports(session: Session) -> set[Path]:
    """The paths that imports, not yet finished, will read."""
    unfinished = select(Job).where(Job.kind == "import-corpus", Job.state.in_(["queued", "running", "paused"]))
    return {Path(str(job.spec.get("path"))) for job in session.scalars(unfinished)}


def _named_sources(session: Session) -> set[str]:
    """The paths that any import or corpus names."""
    imports = session.scalars(select(Job).where(Job.kind == "import-corpus"))
    return {str(job.spec.get("path")) for job in imports} | set(session.scalars(select(Corpus.source)))
