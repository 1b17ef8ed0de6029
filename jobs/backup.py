"""Copies a workbench into a folder while it runs: registry, artifacts, checkpoints and logs of jobs, uploads.

The rows are copied first, in one snapshot, into an SQLite file: by SQLite's own backup, or those of PostgreSQL one by
one. What they refer to is not changed afterwards: artifacts never are, and a deleted one stays in the trash. Each copy
is compared with its row. The folder gets its name, with a manifest of all its files, only when everything is in it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from sqlalchemy import select

from engine.errors import DamagedFileError
from engine.files import faults_in, new_folder, read_temporary
from jobs.attempt.leftovers import MADE, WORK
from jobs.uploads import uploads_folder
from workbench.answers.integrity import FaultyArtifact, WorkbenchBackup
from workbench.errors import DiskFullError, StorageError, StoreFailedError
from workbench.integrity.check import See, faulty_artifact
from workbench.registry import backups, database
from workbench.schema.job_tables import Job
from workbench.schema.tables import Artifact
from workbench.settings import Settings
from workbench.store.storage import OWNER, Storage, free_bytes, get_storage, noticing_full_disk

CARD, REGISTRY = "backup.json", "registry.db"
ARTIFACTS, JOBS, UPLOADS = "artifacts", "jobs", "uploads"  # as in a home folder
CHECKPOINT_TRIES = 5  # a training may replace both of its checkpoints while they are read
_MARK = "backup"  # of the temporary folder: the next backup of the same name removes what a killed one left


def back_up(settings: Settings, folder: Path, see: See = lambda *_: None) -> WorkbenchBackup:
    """Copies the workbench into a new folder. Raises StorageError, or DiskFullError before anything is written.

    Artifacts that are damaged or missing are named in the result; everything else is copied all the same.
    """
    folder = folder.expanduser().absolute()
    _require_possible(settings, folder)
    with explaining_disk_errors(folder), new_folder(folder, replace=False, mark=_MARK) as aside:
        aside.chmod(0o700)
        copy = settings_of(settings, aside)
        backups.copy_registry(settings, aside / REGISTRY)
        made_at = time.time()
        with database.reading(copy) as session:
            job_ids = sorted(session.scalars(select(Job.id)))
        for job_id in job_ids:
            _copy_job(settings.jobs_folder / job_id, aside / JOBS / job_id)
        copy_tree(uploads_folder(settings.root), aside / UPLOADS)
        num_artifacts, num_bytes, faulty = _copy_artifacts(settings, copy, see)
        database.close_engine(copy)
        made = WorkbenchBackup(
            folder=str(folder),
            version=database.VERSION,
            made_at=made_at,
            num_artifacts=num_artifacts,
            num_bytes=num_bytes,
            faulty=faulty,
        )
        (aside / CARD).write_text(made.model_dump_json(indent=1), encoding="utf-8")
    return made


def settings_of(settings: Settings, home: Path) -> Settings:
    """The settings of a workbench that lies in one folder."""
    return settings.model_copy(update={"home": home, "artifacts": None, "database_url": "", "store": ""})


@contextmanager
def explaining_disk_errors(folder: Path) -> Iterator[None]:
    """Turns errors of the disk while a folder is written into DiskFullError or StorageError."""
    try:
        with noticing_full_disk(folder.parent):
            yield
    except DiskFullError as full:  # what writes artifacts advises another folder for those of the workbench
        next_step = "Free some space, or choose a folder on a larger disk; then start again."
        raise DiskFullError(full.problem, next_step) from full
    except OSError as error:
        problem = f"{folder} cannot be written: {error.strerror or error} ({error.filename or folder})."
        raise StorageError(problem, "Repair that, and start again: nothing was left behind.") from error


def _require_possible(settings: Settings, folder: Path) -> None:
    database.require_registry(settings)
    if folder.exists():
        raise StorageError(f"{folder} exists already.", "Choose another name.")
    if any(folder.is_relative_to(own) for own in (settings.root, settings.artifacts_folder)):
        raise StorageError(f"{folder} is inside the workbench.", "Choose a folder outside of it.")
    with database.reading(settings) as session:
        needed = sum(session.scalars(select(Artifact.size_bytes)))
    needed += backups.size_of_registry(settings)
    if (free := free_bytes(folder.parent)) < needed:
        raise DiskFullError(
            f"The backup needs {needed:,} bytes, but only {free:,} are free in {folder.parent}.",
            "Choose a folder on a larger disk.",
        )


# artifacts ----------------------------------------------------------------------------------------------


def _copy_artifacts(settings: Settings, copy: Settings, see: See) -> tuple[int, int, list[FaultyArtifact]]:
    """The number of artifacts, their bytes, and those that are damaged or missing."""
    source, target = get_storage(settings), get_storage(copy)
    target.records.folder.mkdir(parents=True)
    copy_tree(source.folder / OWNER, target.folder / OWNER)
    with database.reading(copy) as session:
        artifacts = list(session.scalars(select(Artifact).order_by(Artifact.created_at, Artifact.id)))
        session.expunge_all()
    total, done, faulty = sum(artifact.size_bytes for artifact in artifacts), 0, []
    for number, artifact in enumerate(artifacts):
        see(number, len(artifacts), done, total)
        _copy_artifact(source, target, artifact)
        fault = faulty_artifact(copy, artifact)
        if fault is not None and _is_fetched_again(source, artifact):
            _copy_artifact(source, target, artifact)
            fault = faulty_artifact(copy, artifact)
        if fault is not None:
            faulty.append(fault)
        done += artifact.size_bytes
    see(len(artifacts), len(artifacts), total, total)
    return len(artifacts), total, faulty


def _copy_artifact(source: Storage, target: Storage, artifact: Artifact) -> None:
    """Copies an artifact with its record, from the trash if it was deleted meanwhile."""
    for _ in range(2):  # it may be moved to the trash while it is read
        in_trash = [entry.path for entry in source.trash.entries() if entry.id == artifact.id]
        folder = next((path for path in (_fetch_folder(source, artifact), *in_trash) if path.exists()), None)
        if folder is not None:
            shutil.rmtree(target.path(artifact.id), ignore_errors=True)
            copy_tree(folder, target.path(artifact.id))
            if folder.exists():
                break
    copy_tree(source.records.path(artifact.id), target.records.path(artifact.id))


def _fetch_folder(source: Storage, artifact: Artifact) -> Path:
    """The folder of an artifact; absent where a shared store has none, or a damaged one.

    Raises StoreFailedError, and DiskFullError where it does not fit.
    """
    try:
        return source.path(artifact.id)
    except (StoreFailedError, DiskFullError):
        raise
    except StorageError:
        return source.place(artifact.id)


def _is_fetched_again(source: Storage, artifact: Artifact) -> bool:
    """True once the damaged copy of an artifact is replaced by that of a shared store. Raises the same."""
    if source.shared is None:
        return False
    try:
        replace(source.kept(artifact), record=None).check()
    except (StoreFailedError, DiskFullError):
        raise
    except (StorageError, DamagedFileError):
        return False
    return True


# jobs ---------------------------------------------------------------------------------------------------


def _copy_job(source: Path, target: Path) -> None:
    """Copies a job's log and its checkpoints; a checkpoint is copied as a unit, or left out."""
    for file in _entries(source):
        if file.name not in (MADE, WORK):
            copy_tree(file, target / file.name)
    for _ in range(CHECKPOINT_TRIES):
        shutil.rmtree(target / WORK, ignore_errors=True)
        for entry in sorted(_entries(source / WORK), reverse=True):  # the newest checkpoint first
            copy_tree(entry, target / WORK / entry.name)
        damaged = [folder for folder in _checkpoints(target / WORK) if any(faults_in(folder))]
        for folder in damaged:
            shutil.rmtree(folder)
        if not damaged or _checkpoints(target / WORK):
            return


def _checkpoints(work: Path) -> list[Path]:
    return sorted(path.parent for path in work.rglob("manifest.json"))


def _entries(folder: Path) -> Iterator[Path]:
    """What is in a folder, without files that are being written."""
    with suppress(FileNotFoundError, NotADirectoryError):
        yield from [path for path in folder.iterdir() if read_temporary(path) is None]


def copy_tree(source: Path, target: Path) -> None:
    """Copies a file or a folder, if it is there, without what is being written or vanishes meanwhile, and links."""
    if source.is_symlink():
        return
    if not source.is_dir():
        with suppress(FileNotFoundError):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
        return
    target.mkdir(parents=True, exist_ok=True)
    for entry in _entries(source):
        copy_tree(entry, target / entry.name)
