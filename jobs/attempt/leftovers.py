"""What killed attempts leave behind, and its removal once their job has ended.

Each artifact is noted in its job's folder before its first file is made, `jobs/JOB/made/ARTIFACT`: so one that never
got a row is known to be its job's, and needs no grace period.

A finished training keeps for its replay, in `jobs/JOB/replay`, what it read and its last checkpoint but one. A
checkpoint is three times as large as the parameters that were trained. All kept ones share the bytes of
`WORKBENCH_REPLAY_BYTES`; the oldest are deleted first. The notes on what was read are small and stay.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.files import aside_of, aside_pattern, folder_size, former_of, former_pattern
from workbench.kinds.kind import known_kinds
from workbench.registry import database
from workbench.schema.job_states import FINISHED
from workbench.schema.job_tables import Job
from workbench.schema.tables import Artifact
from workbench.settings import Settings
from workbench.store.object_store import ObjectStore
from workbench.store.row_records import write_records
from workbench.store.storage import Storage, confine, get_storage

REPLAY = "replay"  # in a job's folder
_CHECKPOINT, _STEPS = "checkpoint", "step-*"
_MARK = "job"  # of temporary paths: a call that was cut off is repeated with what it left
_STATISTICS = "throughput.json"  # of the attempts, not an input


def keep_for_replay(work: Path) -> None:
    """Moves what a replay needs out of the folder of a training that is done. A call that was cut off is repeated."""
    kept, aside = work.with_name(REPLAY), aside_of(work.with_name(REPLAY), _MARK)
    if kept.exists():
        return
    aside.mkdir(exist_ok=True)
    # Of several processes with checkpoints of their own, that of each; a hidden folder is a snapshot of an upload.
    folders = {path.parent for path in work.rglob(_STEPS) if not path.parent.name.startswith(".")}
    for checkpoint in [step for folder in sorted(folders) for step in sorted(folder.glob(_STEPS))[-2:-1]]:
        target = aside / _CHECKPOINT / checkpoint.relative_to(work)
        target.parent.mkdir(parents=True, exist_ok=True)
        if not any(target.parent.glob(_STEPS)):  # else a call that was cut off moved it
            checkpoint.rename(target)
    for notes in sorted(work.glob("*.json")):
        if notes.name != _STATISTICS:
            notes.rename(aside / notes.name)
    aside.rename(kept)


def copy_for_replay(replay: Path, work: Path) -> None:
    """Copies what a training left into an empty folder to train in; without the checkpoint once that was deleted."""
    for notes in replay.glob("*.json"):
        shutil.copy(notes, work)
    for checkpoint in sorted((replay / _CHECKPOINT).glob("*")):
        try:
            shutil.copytree(checkpoint, work / checkpoint.name)
        except (FileNotFoundError, shutil.Error):  # deleted while it was read
            for copied in (replay / _CHECKPOINT).glob("*"):
                shutil.rmtree(work / copied.name, ignore_errors=True)
            return


def drop_oldest(settings: Settings) -> None:
    """Deletes the oldest kept checkpoints until the others fit into `WORKBENCH_REPLAY_BYTES`."""
    left = settings.replay_bytes
    for cut_off in settings.jobs_folder.glob(f"*/{REPLAY}/{former_pattern(_CHECKPOINT)}"):
        shutil.rmtree(cut_off, ignore_errors=True)
    for checkpoint in sorted(settings.jobs_folder.glob(f"*/{REPLAY}/{_CHECKPOINT}"), key=_modified_at, reverse=True):
        with suppress(FileNotFoundError):  # another process also deletes it
            size = folder_size(checkpoint)
            if size <= left:
                left -= size
            else:
                dropped = checkpoint.rename(former_of(checkpoint, _MARK))
                shutil.rmtree(dropped, ignore_errors=True)


def _modified_at(folder: Path) -> float:
    with suppress(FileNotFoundError):
        return folder.stat().st_mtime
    return 0.0


def kept_step(replay: Path) -> int:
    """The step of the kept checkpoint; 0 where none is kept."""
    return max((int(path.name.partition("-")[2]) for path in (replay / _CHECKPOINT).glob(_STEPS)), default=0)


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
        notes = sorted((folder / MADE).iterdir()) if (folder / MADE).is_dir() else []
        unrecorded = [note.name for note in notes if not storage.records.is_live(note.name)]
        if state == "done" and unrecorded:
            write_records(session, storage, unrecorded)
        for note in notes:
            for cut_off in sorted(storage.folder.glob(aside_pattern(note.name))):
                shutil.rmtree(cut_off, ignore_errors=True)
                removed.append(cut_off)
            if state == "done" and (artifact := _trash_unregistered(session, storage, note.name)) is not None:
                removed.append(artifact)
            elif state != "done" and storage.place(note.name).exists():
                continue  # it may still be needed, or get a row
            note.unlink(missing_ok=True)
        known = known_kinds().get(kind)
        if state == "done" and known and known.replayed is not None and (folder / WORK).is_dir():
            keep_for_replay(folder / WORK)  # under the lock: the scheduler may be doing the same
        with suppress(OSError):  # it is not empty, or not there
            (folder / MADE).rmdir()
    if state == "done" and (folder / WORK).is_dir():
        drop_oldest(settings)
        shutil.rmtree(folder / WORK, ignore_errors=True)
        removed.append(folder / WORK)
    return removed


def jobs_with_leftovers(settings: Settings) -> set[str]:
    """The ids of ended jobs whose folders have notes, and of done ones that still have checkpoints."""
    folders = list(settings.jobs_folder.iterdir()) if settings.jobs_folder.is_dir() else []
    noted = {path.name for path in folders if (path / MADE).is_dir()}
    working = {path.name for path in folders if (path / WORK).is_dir()}
    with database.reading(settings) as session:
        return _in_state(session, noted, *FINISHED) | _in_state(session, working, "done")


def _in_state(session: Session, ids: set[str], *states: str) -> set[str]:
    return set(session.scalars(select(Job.id).where(Job.state.in_(states)))) & ids if ids else set()


def _trash_unregistered(session: Session, storage: Storage, artifact_id: str) -> Path | None:
    """Moves an artifact that no registry has recorded to the trash."""
    path = storage.place(artifact_id)
    if session.get(Artifact, artifact_id) is not None or storage.records.is_live(artifact_id):
        return None
    try:
        storage.trash.put(path, "artifact")
    except FileNotFoundError:
        return None
    return path
