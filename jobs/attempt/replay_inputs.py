"""What a finished training leaves for its replay, `jobs/JOB/replay`: what it read, and its last checkpoint but one.

A checkpoint is three times as large as the parameters that were trained. All that are kept share the bytes of
`WORKBENCH_REPLAY_BYTES`; the oldest are deleted first. The notes on what was read are small and stay.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from engine.files import aside_of, folder_size, former_of, former_pattern
from workbench.settings import Settings

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
    for checkpoint in list(_last_but_one(work)):
        target = aside / _CHECKPOINT / checkpoint.relative_to(work)
        target.parent.mkdir(parents=True, exist_ok=True)
        if not any(target.parent.glob(_STEPS)):  # else a call that was cut off moved it
            checkpoint.rename(target)
    for notes in sorted(work.glob("*.json")):
        if notes.name != _STATISTICS:
            notes.rename(aside / notes.name)
    aside.rename(kept)


def put_into(replay: Path, work: Path) -> None:
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
    for checkpoint in sorted(settings.jobs_folder.glob(f"*/{REPLAY}/{_CHECKPOINT}"), key=_changed_at, reverse=True):
        with suppress(FileNotFoundError):  # another process deletes it, too
            size = folder_size(checkpoint)
            if size <= left:
                left -= size
            else:
                dropped = checkpoint.rename(former_of(checkpoint, _MARK))
                shutil.rmtree(dropped, ignore_errors=True)


def _last_but_one(work: Path) -> Iterator[Path]:
    """The last checkpoint but one; of several processes with checkpoints of their own, that of each."""
    folders = {path.parent for path in work.rglob(_STEPS)}
    for folder in sorted(one for one in folders if not one.name.startswith(".")):  # no snapshot of an upload
        yield from sorted(folder.glob(_STEPS))[-2:-1]


def _changed_at(folder: Path) -> float:
    with suppress(FileNotFoundError):
        return folder.stat().st_mtime
    return 0.0


def kept_step(replay: Path) -> int:
    """The step of the kept checkpoint; 0 where none is kept."""
    return max((int(path.name.partition("-")[2]) for path in (replay / _CHECKPOINT).glob(_STEPS)), default=0)
