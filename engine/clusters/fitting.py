"""Fits an embedder and clusters on a sample of training documents, and describes the clusters by words.

Shapes: N documents of the sample, K clusters, D dimensions.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from engine.clusters.artifact import Clustering
from engine.clusters.centroids import Labels
from engine.clusters.clusterer_registry import find_clusters
from engine.clusters.config import ClusterConfig, TfidfConfig
from engine.clusters.describe import top_terms
from engine.clusters.embedders.base import AnyEmbedder
from engine.clusters.embedders.tfidf_svd import TfidfEmbedder, fit_tfidf, load_tfidf
from engine.errors import DamagedFile, EngineError
from engine.events import Progress, forward_progress
from engine.text.parquet_rows import num_rows, read_rows

BATCH = 256  # documents embedded at once
NUM_TERMS = 20

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Words:
    """Word descriptions of clusters: a tf-idf embedder, and the mean vector [K, D] of each cluster in it."""

    embedder: TfidfEmbedder
    centres_KD: Floats

    def terms(self) -> list[list[str]]:
        """The top words of each cluster."""
        return top_terms(self.embedder, self.centres_KD, NUM_TERMS)

    def save(self, folder: Path) -> None:
        """Writes embedder and means into an empty folder."""
        self.embedder.save(folder)
        save_file({"centres_KD": self.centres_KD}, folder / "centres.safetensors")


@dataclass(frozen=True)
class Fitted:
    """A clustering with its word descriptions."""

    clustering: Clustering
    words: Words

    def save(self, folder: Path) -> None:
        """Writes both into an empty folder; a shared tf-idf embedder is written once."""
        self.clustering.save(folder)
        if self.words.embedder is not self.clustering.embedder:
            (folder / "words").mkdir()
            self.words.save(folder / "words")


def words_of(clustering: Clustering, folder: Path) -> Words:
    """The word descriptions of the clustering in a folder."""
    if isinstance(clustering.embedder, TfidfEmbedder):
        return Words(clustering.embedder, clustering.clusters.centres_KD)
    try:
        centres_KD = load_file(folder / "words" / "centres.safetensors")["centres_KD"]
    except (OSError, KeyError, SafetensorError) as error:
        raise DamagedFile(
            f"The words of the clusters in {folder} cannot be read ({error}).", "Cluster again."
        ) from error
    return Words(load_tfidf(folder / "words"), centres_KD)


def fit(
    sample: Path, words: TfidfConfig, clusters: ClusterConfig, embedder: AnyEmbedder | None = None
) -> Generator[Progress, None, Fitted]:
    """Fits clusters on the documents of a table; the default embedder is tf-idf.

    Raises EngineError for fewer documents than clusters, and for documents without a word.
    """
    total = num_rows(sample)
    require_enough(total, clusters.num_clusters)
    texts = (row["text"] for row in read_rows(sample))
    by_words = yield from forward_progress(fit_tfidf(texts, words), total)
    vectors_ND = yield from embed(sample, embedder or by_words)
    clusters_fitted = yield from forward_progress(find_clusters(vectors_ND, clusters))
    ids = tuple(row["id"] for row in read_rows(sample))
    clustering = Clustering(clusters_fitted, embedder or by_words, ids)
    if embedder is None:
        return Fitted(clustering, Words(by_words, clusters_fitted.centres_KD))
    in_words_ND = yield from embed(sample, by_words)
    return Fitted(
        clustering, Words(by_words, means(in_words_ND, clusters_fitted.labels_N, clusters_fitted.num_clusters))
    )


def embed(documents: Path, embedder: AnyEmbedder) -> Generator[Progress, None, Floats]:
    """The vectors [N, D] of the documents in a table."""
    total = num_rows(documents)
    vectors_ND = np.empty((total, embedder.dimension), dtype=np.float32)
    rows, done = read_rows(documents), 0
    while texts := [row["text"] for row in islice(rows, BATCH)]:
        vectors_ND[done : done + len(texts)] = embedder.embed(texts).vectors_ND
        done += len(texts)
        yield Progress(done, total, "documents", "embedding the sample")
    return vectors_ND


def means(vectors_ND: Floats, labels_N: Labels, num_clusters: int) -> Floats:
    """The mean vector [K, D] of each cluster; 0 for an empty one."""
    sums_KD = np.zeros((num_clusters, vectors_ND.shape[1]))
    np.add.at(sums_KD, labels_N, vectors_ND)
    sizes_K = np.bincount(labels_N, minlength=num_clusters)
    means_KD: Floats = (sums_KD / np.maximum(sizes_K, 1)[:, None]).astype(np.float32)
    return means_KD


def require_enough(num_documents: int, num_clusters: int) -> None:
    """Raises EngineError for fewer documents than clusters, before anything is computed."""
    if num_documents < num_clusters:
        raise EngineError(
            f"{num_documents} training documents are too few for {num_clusters} clusters.",
            "Choose fewer clusters or a larger sample, or import more text.",
        )
