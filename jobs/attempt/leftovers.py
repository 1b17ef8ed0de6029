"""What killed attempts leave behind, and its removal once their job has ended.

Each artifact is noted in its job's folder before its first file is made, `jobs/JOB/made/ARTIFACT`: so one that never
got a row is known to be its job's, and needs no grace period.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.files import aside_pattern
from jobs.attempt.replay_inputs import drop_oldest, keep_for_replay
from workbench.kinds.kind import known_kinds
from workbench.registry import database
from workbench.schema.job_states import FINISHED
from workbench.schema.tables import Artifact, Job
from workbench.settings import Settings
from workbench.store.object_store import ObjectStore
from workbench.store.row_records import write_records
from workbench.store.storage import Storage, confine, get_storage

MADE, WORK = "made", "work"  # in a job's folder: the notes, and its checkpoints


class NotedStorage(Storage):
    """A storage that notes every new artifact in a job's folder.

    `before_upload` is called with its id before each file that goes to a shared store, and raises when the job must
    not upload any more.
    """

    def __init__(
        self,
        folder: Path,
        notes: Path,
        shared: ObjectStore | None = None,
        before_upload: Callable[[str], object] = lambda _: None,
    ) -> None:
        super().__init__(folder, shared)
        self._notes, self._note_upload = notes, before_upload

    def _before_upload(self, artifact_id: str) -> None:
        self._note_upload(artifact_id)

    @contextmanager
    def new(self, artifact_id: str) -> Iterator[Path]:
        self.place(artifact_id)  # an id, or an error
        self._notes.mkdir(parents=True, exist_ok=True)
        (self._notes / artifact_id).touch()
        with Storage.new(self, artifact_id) as folder:
            yield folder


def remove_leftovers_of(settings: Settings, job_id: str) -> list[Path]:
    """Removes what an ended job's attempts left, and returns the former paths.

    Of every ended job: artifacts that were never completed. Of one that is done also its checkpoints, but for what a
    replay needs, and artifacts without a row, which go to the trash; a failed or cancelled one may be retried and needs
    them.
    """
    folder, removed = confine(settings.jobs_folder, job_id), []
    storage = get_storage(settings)
    with database.transaction(settings) as session:
        locked = select(Job.state, Job.kind).where(Job.id == job_id).with_for_update()  # nobody starts it meanwhile
        state, kind = session.execute(locked).one_or_none() or ("", "")
        if state not in FINISHED:
            return []
        notes = _notes(folder)
        unrecorded = [note.name for note in notes if not storage.records.is_live(note.name)]
        if state == "done" and unrecorded:
            write_records(session, storage, unrecorded)
        for note in notes:
            removed += _asides(storage, note.name)
            if state == "done" and (artifact := _unregistered(session, storage, note.name)) is not None:
                removed.append(artifact)
            elif state != "done" and storage.place(note.name).exists():
                continue  # it may still be needed, or get a row
            note.unlink(missing_ok=True)
        if state == "done" and _is_replayed(kind) and (folder / WORK).is_dir():
            keep_for_replay(folder / WORK)  # under the lock: the scheduler may be at it, too
        with suppress(OSError):  # it is not empty, or not there
            (folder / MADE).rmdir()
    if state == "done" and (folder / WORK).is_dir():
        drop_oldest(settings)
        shutil.rmtree(folder / WORK, ignore_errors=True)
        removed.append(folder / WORK)
    return removed


def _is_replayed(kind: str) -> bool:
    known = known_kinds().get(kind)
    return known is not None and known.replayed is not None


def jobs_with_leftovers(settings: Settings) -> set[str]:
    """The ids of ended jobs whose folders have notes, and of done ones that still have checkpoints."""
    folders = list(settings.jobs_folder.iterdir()) if settings.jobs_folder.is_dir() else []
    noted = {path.name for path in folders if (path / MADE).is_dir()}
    working = {path.name for path in folders if (path / WORK).is_dir()}
    with database.reading(settings) as session:
        return _in_state(session, noted, *FINISHED) | _in_state(session, working, "done")


def _in_state(session: Session, ids: set[str], *states: str) -> set[str]:
    return set(session.scalars(select(Job.id).where(Job.state.in_(states)))) & ids if ids else set()


def _notes(folder: Path) -> list[Path]:
    return sorted((folder / MADE).iterdir()) if (folder / MADE).is_dir() else []


def _asides(storage: Storage, artifact_id: str) -> list[Path]:
    cut_off = sorted(storage.folder.glob(aside_pattern(artifact_id)))
    for aside in cut_off:
        shutil.rmtree(aside, ignore_errors=True)
    return cut_off


def _unregistered(session: Session, storage: Storage, artifact_id: str) -> Path | None:
    """Moves an artifact that no registry has recorded to the trash."""
    path = storage.place(artifact_id)
    if session.get(Artifact, artifact_id) is not None or storage.records.is_live(artifact_id):
        return None
    try:
        storage.trash.put(path, "artifact")
    except FileNotFoundError:
        return None
    return path
