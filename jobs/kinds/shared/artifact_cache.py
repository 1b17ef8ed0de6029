"""Artifacts with a key in the registry: made once and shared by all jobs that need them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

from engine.errors import DamagedFile
from engine.events import Event, Note
from jobs.attempt.work import Work
from workbench.store.artifacts import find_artifact


def cached_artifact(
    work: Work, key: str, kind: str, fill: Callable[[Path], Iterator[Event]]
) -> Generator[Event, None, Path]:
    """Returns the verified folder of the artifact with this key. `fill` writes it if no job has made it yet.

    A damaged one loses its row, so that garbage collection takes it, and is made again.
    """
    with work.reading() as session:
        existing = find_artifact(session, key)
        kept = work.storage.kept(existing) if existing else None
    if kept is not None:
        try:
            kept.check()
        except DamagedFile as damaged:
            yield Note(f"{damaged.problem} It is made again.")
            _forget(work, key, kept.folder.name)
        else:
            return kept.folder
    artifact_id = uuid.uuid4().hex
    with work.storage.new(artifact_id) as folder:
        yield from fill(folder)
    return work.share(artifact_id, kind, key)


def _forget(work: Work, key: str, artifact_id: str) -> None:
    """Deletes the row of a damaged artifact, unless another job has made it again already."""
    with work.transaction() as session:
        row = find_artifact(session, key)
        if row is not None and row.id == artifact_id:
            session.delete(row)
