"""Merges, splits and pins: each edit replaces the clustering's artifact by a new one. Descriptions of clusterings."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy.orm import Session

from engine.clusters.artifact import open_clustering
from engine.clusters.centroids import squared_distances
from engine.clusters.config import ClusterConfig
from engine.clusters.documents import ClusteredDocuments, load_documents, write_sample
from engine.clusters.fitting import (
    ClusterSplit,
    Edited,
    Fitted,
    embed,
    find_apart,
    label_overlap,
    means,
    merge_clusters,
    pin_documents,
    require_enough,
    split_cluster,
    words_of,
)
from engine.events import Progress
from engine.text.split_names import SPLITS
from jobs.attempt.work import Events, JobRun, Register, Work
from jobs.kinds.clusters.domains import folders_of
from workbench.formatting.clustering_warnings import clustering_warnings
from workbench.formatting.number_format import pluralize
from workbench.kinds.clusters import MergeClusters, PinDocuments, SplitCluster
from workbench.registry.clusters.clusterings import (
    ClusterFacts,
    ClusteringFiles,
    clustering_files,
    replace_clusters,
    require_unedited,
)
from workbench.store import artifact_kinds


def merge(work: Work, spec: MergeClusters) -> JobRun:
    """Replaces several clusters by one."""
    opened = open_to_edit(work, spec.clustering)
    yield Progress(0, 1, "edits", "merging")
    numbers = [opened.files.number(cluster) for cluster in spec.clusters]
    return store_edit(work, opened, merge_clusters(opened.fitted, opened.documents, numbers))


def pin(work: Work, spec: PinDocuments) -> JobRun:
    """Assigns documents to a cluster by hand."""
    opened = open_to_edit(work, spec.clustering)
    yield Progress(0, len(spec.documents), "documents", "pinning")
    chosen, cluster = opened.documents.numbers(spec.documents), opened.files.number(spec.cluster)
    return store_edit(work, opened, pin_documents(opened.fitted, opened.documents, chosen, cluster))


def split(work: Work, spec: SplitCluster) -> JobRun:
    """Replaces one cluster by several, which are found within it."""
    opened = open_to_edit(work, spec.clustering, work.settings.device)
    number = opened.files.number(spec.cluster)
    members_M = opened.documents.members(number)
    table = work.folder / "members.parquet"
    yield from write_sample(folders_of(opened.files), opened.documents.ids_N[members_M], table, SPLITS)
    # The new centres are fitted on a sample of the training documents that are not pinned.
    is_free_N = (opened.documents.splits_N == SPLITS.index("train")) & ~opened.documents.is_pinned_N
    free = np.random.default_rng(spec.seed).permutation(np.flatnonzero(is_free_N[members_M]))[: spec.sample_size]
    require_enough(len(free), spec.num_clusters)
    part, num_divided = yield from _divide(table, opened.fitted, np.sort(free), spec)
    return store_edit(work, opened, split_cluster(opened.fitted, opened.documents, number, part), num_divided)


def measures(documents: ClusteredDocuments, num_clusters: int, sources: Sequence[str]) -> dict[str, Any]:
    """Sizes, blank documents, and the overlap of clusters with the documents' domains (figure 16)."""
    names = [sources[number] for number in documents.sources_N.tolist()]
    overlap = label_overlap(documents.labels_N, names, num_clusters)
    return {
        "sizes": documents.sizes(num_clusters),
        "num_bytes": documents.bytes_of_clusters(num_clusters),
        "share_of_longest_tenth": documents.share_of_longest_tenth,
        "num_blank": documents.num_blank,
        "num_pinned": int(documents.is_pinned_N.sum()),
        "overlap": {
            "labels": list(overlap.labels),
            "counts": overlap.counts_LK.tolist(),
            "normalised_mutual_information": overlap.normalised_mutual_information,
        },
    }


def facts(fitted: Fitted, documents: ClusteredDocuments) -> list[ClusterFacts]:
    """Size, terms and nearest documents of each cluster."""
    sizes = documents.sizes(fitted.clustering.clusters.num_clusters)
    return [
        ClusterFacts(size, terms, documents.nearest(number))
        for number, (size, terms) in enumerate(zip(sizes, fitted.words.terms(), strict=True))
    ]


@dataclass(frozen=True)
class OpenClustering:
    """A clustering with the cluster of each document."""

    files: ClusteringFiles
    fitted: Fitted
    documents: ClusteredDocuments


def open_to_edit(work: Work, name: str, device: str = "cpu") -> OpenClustering:
    """Loads a clustering by name, with its documents; a model that embeds them is loaded on `device`."""
    with work.reading() as session:
        files = clustering_files(session, work.storage, name)
    clustering = open_clustering(files.kept, files.seed, device)
    fitted = Fitted(clustering, words_of(clustering, files.kept.folder))
    return OpenClustering(files, fitted, load_documents(files.kept.folder))


def store_edit(work: Work, opened: OpenClustering, edited: Edited, num_divided: int = 0) -> Register:
    """Writes a new artifact with the edited clustering, in which so many more documents are divided arbitrarily."""
    artifact_id = work.stable_id("clustering")
    with work.storage.new(artifact_id) as folder:
        edited.fitted.save(folder)
        edited.documents.save(folder)
        for name in ("map.safetensors", "map.json", "mapped.safetensors"):
            if (opened.files.kept.folder / name).is_file():
                shutil.copy(opened.files.kept.folder / name, folder / name)
    after = [
        replace(
            fact,
            before=before,
            changed=(is_changed := number in edited.changed),
            merged=edited.merged if is_changed else frozenset(),
        )
        for number, (fact, before) in enumerate(zip(facts(edited.fitted, edited.documents), edited.before, strict=True))
    ]
    measured = measures(edited.documents, len(after), [source.name for source in opened.files.sources])

    def register(session: Session) -> dict[str, Any]:
        artifact = work.register_artifact(session, artifact_id, artifact_kinds.CLUSTERING)
        row = require_unedited(session, opened.files.id, opened.files.artifact_id)
        divided = {"num_divided": row.metrics.get("num_divided", 0) + num_divided, "arbitrary": []}  # by old numbers
        metrics = {**row.metrics, **measured, **divided}
        card = replace_clusters(session, row.id, opened.files.artifact_id, artifact, metrics, after)
        return {
            "clustering": card.name,
            "sizes": measured["sizes"],
            "stale_experts": card.stale_experts,
            "sentence": " ".join([_sentence(card.name, len(after), card.stale_experts), *clustering_warnings(metrics)]),
        }

    return register


def _sentence(name: str, num_clusters: int, stale: list[str]) -> str:
    size = f"{name} has {pluralize(num_clusters, 'cluster')} now."
    if not stale:
        return f"{size} No expert was trained on what changed."
    return f"{size} These experts are stale, since their documents changed: {', '.join(stale)}."


def _divide(table: Path, fitted: Fitted, chosen: Any, spec: SplitCluster) -> Events[tuple[ClusterSplit, int]]:
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
