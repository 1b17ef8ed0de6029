"""Artifacts with a key in the registry: made once and shared by all jobs that need them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

from engine.events import Event
from jobs.attempt.work import Work
from workbench.store.artifacts import find_artifact


def cached_artifact(
    work: Work, key: str, kind: str, fill: Callable[[Path], Iterator[Event]]
) -> Generator[Event, None, Path]:
    """Returns the verified folder of the artifact with this key. `fill` writes it if no job has made it yet."""
    with work.reading() as session:
        existing = find_artifact(session, key)
        kept = work.storage.kept(existing) if existing else None
    if kept is not None:
        kept.check()
        return kept.folder
    artifact_id = uuid.uuid4().hex
    with work.storage.new(artifact_id) as folder:
        yield from fill(folder)
    return work.share(artifact_id, kind, key)
