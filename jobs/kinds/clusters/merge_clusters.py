"""Merge clusters of a clustering into one."""

from __future__ import annotations

from engine.clusters import edits
from engine.events import Progress
from jobs.attempt.work import Run, Work
from jobs.kinds.shared.clusters.edits import open_to_edit, store_edit
from workbench.kinds.clusters.merge_clusters import MergeClusters


def run(work: Work, spec: MergeClusters) -> Run:
    """Replaces several clusters by one."""
    opened = open_to_edit(work, spec.clustering)
    yield Progress(0, 1, "edits", "merging")
    numbers = [opened.files.number(cluster) for cluster in spec.clusters]
    return store_edit(work, opened, edits.merge(opened.fitted, opened.documents, numbers))
