"""Assign documents to a cluster by hand."""

from __future__ import annotations

from collections.abc import Generator

from engine.clusters import edits
from engine.events import Event, Progress
from jobs.attempt.work import Register, Work
from jobs.kinds.shared.clusters.edits import open_to_edit, store_edit
from workbench.kinds.clusters import PinDocuments


def run(work: Work, spec: PinDocuments) -> Generator[Event, None, Register]:
    """Stores the clustering with these documents pinned to their cluster."""
    opened = open_to_edit(work, spec.clustering)
    yield Progress(0, len(spec.documents), "documents", "pinning")
    chosen, cluster = opened.documents.numbers(spec.documents), opened.files.number(spec.cluster)
    return store_edit(work, opened, edits.pin(opened.fitted, opened.documents, chosen, cluster))
