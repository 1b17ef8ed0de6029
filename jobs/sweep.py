"""Removes files that no row needs any more, never the reverse."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from workbench import database
from workbench.services import artifacts
from workbench.settings import Settings
from workbench.storage import get_storage
from workbench.tables import Corpus, Job

GRACE_SECONDS = 24 * 3600.0  # longer than any job takes from its last artifact to its row
UPLOAD_GRACE_SECONDS = 3600.0  # a form may be filled in for a while before it is sent
_ID = re.compile(r"[0-9a-f]{32}")


def uploads_folder(home: Path) -> Path:
    """What browsers sent, one folder for each selection of files, until its import is over."""
    return home / "uploads"


def names_file(folder: Path) -> Path:
    """Where it is noted what the files of an upload were called; it stays as long as something names the upload."""
    return folder.with_name(f"{folder.name}.json")


def sweep(settings: Settings) -> None:
    """Removes artifacts without a row, folders of jobs without one, and uploads that no import waits for."""
    # Listed before the rows are read: what is made in between is not in the list.
    jobs = set(_old(settings.jobs_folder, GRACE_SECONDS))
    uploads = set(_old(uploads_folder(settings.root), UPLOAD_GRACE_SECONDS))
    with database.transaction(settings) as session:
        artifacts.sweep(session, get_storage(settings), GRACE_SECONDS)
        known = {settings.jobs_folder / job_id for job_id in session.scalars(select(Job.id))}
        waiting = _waiting_imports(session)
        named = _named_sources(session)
    wanted = {folder for folder in uploads if any(folder in (path, *path.parents) for path in waiting)}
    for folder in sorted(jobs - known | uploads - wanted):
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
