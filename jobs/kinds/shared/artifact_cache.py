"""Artifacts with a key in the registry: made once and shared by all jobs that need them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

from engine.errors import DamagedFileError
from engine.events import Event, Note
from jobs.attempt.work import Work
from workbench.errors import DiskFullError, StorageError, StoreFailedError
from workbench.schema.tables import Artifact
from workbench.store.artifacts import find_artifact


def cached_artifact(
    work: Work, key: str, kind: str, fill: Callable[[Path], Iterator[Event]]
) -> Generator[Event, None, Path]:
    """Returns the verified folder of the artifact with this key. `fill` writes it if no job has made it yet.

    A damaged one loses its row, so that garbage collection takes it, and is made again.
    """
    with work.reading() as session:
        if (existing := find_artifact(session, key)) is not None:
            session.expunge(existing)
    if existing is not None:
        try:
            return _checked(work, existing)
        except DamagedFileError as damaged:
            yield Note(f"{damaged.problem} It is made again.")
            _forget(work, key, existing.id)
    artifact_id = uuid.uuid4().hex
    with work.storage.new(artifact_id) as folder:
        yield from fill(folder)
    return work.share(artifact_id, kind, key)


def _checked(work: Work, artifact: Artifact) -> Path:
    """The folder of an artifact, compared with its manifest. Raises DamagedFileError, also for the shared store's copy.

    Raises StoreFailedError while the store is away, and DiskFullError.
    """
    try:
        kept = work.storage.kept(artifact)
        kept.check()
    except (StoreFailedError, DiskFullError):
        raise
    except StorageError as error:  # fetched now, and damaged in the shared store
        raise DamagedFileError(error.cause, error.next_step) from error
    return kept.folder


def _forget(work: Work, key: str, artifact_id: str) -> None:
    """Deletes the row of a damaged artifact, unless another job has made it again already."""
    with work.transaction() as session:
        row = find_artifact(session, key)
        if row is not None and row.id == artifact_id:
            session.delete(row)
