"""Merge clusters, split one again, pin documents: each leaves a new artifact in the place of the old one."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy.orm import Session

from engine.clusters import edits
from engine.clusters.artifact import open_clustering
from engine.clusters.centroids import Clusters, squared_distances
from engine.clusters.clusterer_registry import find_clusters
from engine.clusters.config import ClusterConfig
from engine.clusters.documents import ClusteredDocuments, load_documents
from engine.clusters.edits import Edited, Part
from engine.clusters.fitting import Fitted, embed, means, require_enough, words_of
from engine.clusters.sources import write_sample
from engine.events import Event, Progress, forward_progress
from engine.text.split import SPLITS
from jobs.attempt.work import Register, Work
from jobs.kinds.shared.cluster_description import facts_after, measures
from jobs.kinds.shared.clustered_text_files import folders_of
from jobs.kinds.shared.stable_ids import made_by
from workbench.cluster_specs import MergeClusters, PinDocuments, SplitCluster
from workbench.registry.clusterings import ClusteringFiles, clustering_files, replace_clusters, require_unedited
from workbench.store.artifacts import register_artifact
from workbench.words import pluralize


@dataclass(frozen=True)
class _Opened:
    files: ClusteringFiles
    fitted: Fitted
    documents: ClusteredDocuments


def merge(work: Work, spec: MergeClusters) -> Generator[Event, None, Register]:
    """One cluster of several."""
    opened = _open(work, spec.clustering)
    yield Progress(0, 1, "edits", "merging")
    edited = edits.merge(opened.fitted, opened.documents, [opened.files.number(one) for one in spec.clusters])
    return _keep(work, opened, edited)


def split(work: Work, spec: SplitCluster) -> Generator[Event, None, Register]:
    """Several clusters of one."""
    opened = _open(work, spec.clustering)
    number = opened.files.number(spec.cluster)
    members_M = opened.documents.members(number)
    table = work.folder / "members.parquet"
    yield from write_sample(folders_of(opened.files), opened.documents.ids_N[members_M], table, SPLITS)
    part = yield from _divide(table, opened.fitted, _to_fit(opened.documents, members_M, spec), spec)
    return _keep(work, opened, edits.split(opened.fitted, opened.documents, number, part))


def pin(work: Work, spec: PinDocuments) -> Generator[Event, None, Register]:
    """Documents where a person wants them."""
    opened = _open(work, spec.clustering)
    yield Progress(0, len(spec.documents), "documents", "pinning")
    chosen = opened.documents.numbers(spec.documents)
    return _keep(work, opened, edits.pin(opened.fitted, opened.documents, chosen, opened.files.number(spec.cluster)))


def _open(work: Work, name: str) -> _Opened:
    with work.reading() as session:
        files = clustering_files(session, work.storage, name)
    clustering = open_clustering(files.kept, files.seed)
    fitted = Fitted(clustering, words_of(clustering, files.kept.folder))
    return _Opened(files, fitted, load_documents(files.kept.folder))


def _to_fit(documents: ClusteredDocuments, members_M: np.typing.NDArray[np.intp], spec: SplitCluster) -> Any:
    """Which members the new centres come from: training documents that nobody pinned, at most a sample of them."""
    may_M = (documents.splits_N[members_M] == SPLITS.index("train")) & ~documents.is_pinned_N[members_M]
    chosen = np.random.default_rng(spec.seed).permutation(np.flatnonzero(may_M))[: spec.sample_size]
    require_enough(len(chosen), spec.num_clusters)
    return np.sort(chosen)


def _divide(table: Path, fitted: Fitted, chosen: Any, spec: SplitCluster) -> Generator[Event, None, Part]:
    """Clusters within a cluster: fitted on the chosen documents of its table, the others go to the nearest."""
    vectors_MD = yield from embed(table, fitted.clustering.embedder)
    config = ClusterConfig(spec.method, spec.num_clusters, seed=spec.seed)
    found: Clusters = yield from forward_progress(find_clusters(vectors_MD[chosen], config))
    labels_M = squared_distances(vectors_MD, found.centres_KD).argmin(1).astype(np.int32)
    labels_M[chosen] = found.labels_N
    words_PD = found.centres_KD
    if fitted.words.embedder is not fitted.clustering.embedder:
        in_words_MD = yield from embed(table, fitted.words.embedder)
        words_PD = means(in_words_MD, labels_M, spec.num_clusters)
    return Part(vectors_MD, labels_M, found.centres_KD, words_PD)


def _keep(work: Work, opened: _Opened, edited: Edited) -> Register:
    """A copy of the folder with what changed in it."""
    artifact_id = made_by(work.job_id, "clustering")
    with work.storage.new(artifact_id) as folder:
        edited.fitted.save(folder)
        edited.documents.save(folder)
        for name in ("map.safetensors", "map.json", "mapped.safetensors"):
            if (opened.files.kept.folder / name).is_file():
                shutil.copy(opened.files.kept.folder / name, folder / name)
    after = facts_after(edited)
    measured = measures(edited.documents, len(after), [source.name for source in opened.files.sources])

    def register(session: Session) -> dict[str, Any]:
        artifact = register_artifact(session, work.storage, artifact_id, "clustering", job_id=work.job_id)
        row = require_unedited(session, opened.files.id, opened.files.artifact_id)
        metrics = {**row.metrics, **measured}
        card = replace_clusters(session, row.id, opened.files.artifact_id, artifact, metrics, after)
        return {
            "clustering": card.name,
            "sizes": measured["sizes"],
            "stale_experts": card.stale_experts,
            "sentence": _sentence(card.name, len(after), card.stale_experts),
        }

    return register


def _sentence(name: str, num_clusters: int, stale: list[str]) -> str:
    told = f"{name} has {pluralize(num_clusters, 'cluster')} now."
    if not stale:
        return f"{told} No expert was trained on what changed."
    return f"{told} Stale, because their documents changed: {', '.join(stale)}. The others stay as they are."
