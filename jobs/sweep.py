"""Moves files that no row needs any more to the trash, never the reverse; a registry without its rows moves nothing."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from workbench import database
from workbench.services import artifacts, rebuild, stores
from workbench.services.rebuild import Rebuilt
from workbench.services.recording import claim_unowned, write_records
from workbench.settings import Settings
from workbench.storage import Storage, get_storage
from workbench.tables import Corpus, Job
from workbench.trash import KEPT_SECONDS, Trash, Trashed

GRACE_SECONDS = 24 * 3600.0  # longer than any job takes from its last artifact to its row
UPLOAD_GRACE_SECONDS = 3600.0  # a form may be filled in for a while before it is sent
_AT_ONCE = 200
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
    to another registry, or this one knows too little of what is there.
    """
    # Listed before the rows are read: what is made in between is not in the list.
    jobs = set(_old(settings.jobs_folder, GRACE_SECONDS))
    uploads = set(_old(uploads_folder(settings.root), UPLOAD_GRACE_SECONDS))
    storage = get_storage(settings)
    with database.transaction(settings) as session:
        claim_unowned(session, storage)
        state = stores.state_of(session, storage)
        if (refused := stores.refusal(state, storage)) is not None:
            raise refused
        artifacts.sweep(session, storage, GRACE_SECONDS)
        known = {settings.jobs_folder / job_id for job_id in session.scalars(select(Job.id))}
        waiting = _waiting_imports(session)
        named = _named_sources(session)
    for folder in sorted(jobs - known):
        with suppress(FileNotFoundError):  # another process sweeps, too
            jobs_trash(settings).put(folder, "job")
    _delete_uploads(settings, uploads, waiting, named)
    empty_trashes(settings)
    _refresh_records(settings, storage, sorted(state.known))


def trashed(settings: Settings) -> list[Trashed]:
    """What is in the trash, of artifacts and of jobs, the oldest first."""
    both = [*get_storage(settings).trash.entries(), *jobs_trash(settings).entries()]
    return sorted(both, key=lambda one: one.at)


def restore(settings: Settings, entries: Sequence[Trashed]) -> Rebuilt:
    """Moves entries of the trash back to their places, and makes rows of what is known of them."""
    for one in entries:
        if one.kind == "job":
            jobs_trash(settings).restore(one, settings.jobs_folder / one.id)
    with database.transaction(settings) as session:
        return rebuild.restore(session, get_storage(settings), [one for one in entries if one.kind == "artifact"])


def empty_trashes(settings: Settings, older_than_seconds: float = KEPT_SECONDS) -> tuple[int, int]:
    """Deletes for good what has been in the trash for that long; gives how many folders and bytes that were."""
    before = {one.path: one.size_bytes for one in trashed(settings)}
    gone = [*get_storage(settings).empty_trash(older_than_seconds), *jobs_trash(settings).empty(older_than_seconds)]
    return len(gone), sum(before.get(one.path, 0) for one in gone)


def _refresh_records(settings: Settings, storage: Storage, artifact_ids: list[str]) -> None:
    """Makes the records say what the rows say now, a few at a time: nobody else can write meanwhile."""
    for first in range(0, len(artifact_ids), _AT_ONCE):
        with database.transaction(settings) as session:
            write_records(session, storage, artifact_ids[first : first + _AT_ONCE])
    storage.forget_records()


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
