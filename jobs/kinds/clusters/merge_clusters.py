"""Merge clusters of a clustering into one."""

from __future__ import annotations

from collections.abc import Generator

from engine.clusters import edits
from engine.events import Event, Progress
from jobs.attempt.work import Register, Work
from jobs.kinds.shared.clusters.edits import open_to_edit, store_edit
from workbench.kinds.clusters import MergeClusters


def run(work: Work, spec: MergeClusters) -> Generator[Event, None, Register]:
    """Replaces several clusters by one."""
    opened = open_to_edit(work, spec.clustering)
    yield Progress(0, 1, "edits", "merging")
    numbers = [opened.files.number(cluster) for cluster in spec.clusters]
    return store_edit(work, opened, edits.merge(opened.fitted, opened.documents, numbers))
