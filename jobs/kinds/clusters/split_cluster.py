"""Split a cluster: find clusters within it."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np

from engine.clusters import edits
from engine.clusters.centroids import squared_distances
from engine.clusters.config import ClusterConfig
from engine.clusters.documents import ClusteredDocuments
from engine.clusters.edits import ClusterSplit
from engine.clusters.fitting import Fitted, embed, find_apart, means, require_enough
from engine.clusters.sources import write_sample
from engine.events import Event
from engine.text.split_names import SPLITS
from jobs.attempt.work import Register, Work
from jobs.kinds.shared.clusters.edits import open_to_edit, store_edit
from jobs.kinds.shared.clusters.text_files import folders_of
from workbench.kinds.clusters import SplitCluster


def run(work: Work, spec: SplitCluster) -> Generator[Event, None, Register]:
    """Replaces one cluster by several."""
    opened = open_to_edit(work, spec.clustering, work.settings.device)
    number = opened.files.number(spec.cluster)
    members_M = opened.documents.members(number)
    table = work.folder / "members.parquet"
    yield from write_sample(folders_of(opened.files), opened.documents.ids_N[members_M], table, SPLITS)
    part, num_divided = yield from _divide(table, opened.fitted, _to_fit(opened.documents, members_M, spec), spec)
    return store_edit(work, opened, edits.split(opened.fitted, opened.documents, number, part), num_divided)


def _to_fit(documents: ClusteredDocuments, members_M: np.typing.NDArray[np.intp], spec: SplitCluster) -> Any:
    """The members that the new centres are fitted on: a sample of the training documents that are not pinned."""
    may_M = (documents.splits_N[members_M] == SPLITS.index("train")) & ~documents.is_pinned_N[members_M]
    chosen = np.random.default_rng(spec.seed).permutation(np.flatnonzero(may_M))[: spec.sample_size]
    require_enough(len(chosen), spec.num_clusters)
    return np.sort(chosen)


def _divide(
    table: Path, fitted: Fitted, chosen: Any, spec: SplitCluster
) -> Generator[Event, None, tuple[ClusterSplit, int]]:
    """Fits clusters on the chosen documents of a table and assigns the others to the nearest.

    Also the number of documents that have the vector of a document of another part.
    """
    vectors_MD = yield from embed(table, fitted.clustering.embedder)
    config = ClusterConfig(spec.method, spec.num_clusters, seed=spec.seed)
    clusters, facts = yield from find_apart(vectors_MD[chosen], config, fitted.clustering.embedder)
    labels_M = squared_distances(vectors_MD, clusters.centres_KD).argmin(1).astype(np.int32)
    labels_M[chosen] = clusters.labels_N
    words_PD = clusters.centres_KD
    if fitted.words.embedder is not fitted.clustering.embedder:
        in_words_MD = yield from embed(table, fitted.words.embedder)
        words_PD = means(in_words_MD, labels_M, spec.num_clusters)
    return ClusterSplit(vectors_MD, labels_M, clusters.centres_KD, words_PD), facts.num_divided
