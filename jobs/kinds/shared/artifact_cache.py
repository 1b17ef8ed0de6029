"""What is made once for all jobs that need it: an artifact that the registry finds by its key."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

from engine.events import Event
from jobs.attempt.work import Work
from workbench.store.artifacts import find_artifact, register_artifact


def made_once(work: Work, key: str, kind: str, fill: Callable[[Path], Iterator[Event]]) -> Generator[Event, None, Path]:
    """The folder of what a key names, once it is proved whole; filled now unless some job did it before."""
    with work.reading() as session:
        found = find_artifact(session, key)
        kept = work.storage.kept(found) if found else None
    if kept is not None:
        kept.check()
        return kept.folder
    artifact_id = uuid.uuid4().hex
    with work.storage.new(artifact_id) as folder:
        yield from fill(folder)
    with work.transaction() as session:
        first = find_artifact(session, key)  # another job may have been faster; what it made is the same
        artifact = first or register_artifact(session, work.storage, artifact_id, kind, key=key, job_id=work.job_id)
        return work.storage.path(artifact.id)
