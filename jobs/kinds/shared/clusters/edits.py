"""Descriptions of clusterings, and edits of them: each edit replaces the clustering's artifact by a new one."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy.orm import Session

from engine.clusters.artifact import open_clustering
from engine.clusters.describe import label_overlap
from engine.clusters.documents import ClusteredDocuments, load_documents
from engine.clusters.edits import Edited
from engine.clusters.fitting import Fitted, words_of
from jobs.attempt.work import Register, Work
from workbench.formatting.clustering_warnings import clustering_warnings
from workbench.formatting.number_format import pluralize
from workbench.registry.clusters.clusterings import (
    ClusterFacts,
    ClusteringFiles,
    clustering_files,
    replace_clusters,
    require_unedited,
)
from workbench.store import artifact_kinds


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
