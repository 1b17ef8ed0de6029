"""Fits an embedder and clusters on a sample of training documents, describes the clusters by words, and edits them.

Cluster numbers are consecutive indices of the centres: a merged cluster gets the least of its numbers and higher ones
move down; a split keeps the number for its first part and appends the others.
Shapes: N documents of the sample, M of one cluster, K clusters, P parts, D dimensions.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from engine.clusters.artifact import BATCH, FittedClustering
from engine.clusters.centroids import Clusters, Labels, is_divided, positions, squared_lengths
from engine.clusters.clusterer_type import clusterer_type
from engine.clusters.config import ClusterConfig, TfidfConfig
from engine.clusters.documents import ClusteredDocuments, as_ids, places_of
from engine.clusters.embedders.base import AnyEmbedder
from engine.clusters.embedders.tfidf_svd import (
    BY_HIDDEN_STATES,
    TfidfEmbedder,
    UnspacedText,
    fit_tfidf,
    load_tfidf,
    top_terms,
)
from engine.clusters.kmeans import find_clusters
from engine.errors import EngineError
from engine.events import Progress, forward_progress
from engine.files import reading_own
from engine.text.parquet_rows import num_rows, read_rows

NUM_TERMS = 20
_FACTS = "sample.json"

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
class SampleFacts:
    """What the sample says of the clusters' worth.

    `num_divided` documents have the vector of a document of another cluster, and `arbitrary` clusters consist mostly
    of such documents: any others would do as well. `unspaced_share` of the letters that tf-idf read are in text
    without blanks between words, where whole clauses count as one word.
    """

    num_divided: int = 0
    arbitrary: tuple[int, ...] = ()
    unspaced_share: float = 0.0


@dataclass(frozen=True)
class Fitted:
    """A clustering with its word descriptions, and facts about the sample that it was fitted on."""

    clustering: FittedClustering
    words: Words
    facts: SampleFacts | None = None

    def save(self, folder: Path) -> None:
        """Writes both into an empty folder; a shared tf-idf embedder is written once."""
        self.clustering.save(folder)
        if self.facts is not None:
            (folder / _FACTS).write_text(json.dumps(asdict(self.facts)), encoding="utf-8")
        if self.words.embedder is not self.clustering.embedder:
            (folder / "words").mkdir()
            self.words.save(folder / "words")


def words_of(clustering: FittedClustering, folder: Path) -> Words:
    """The word descriptions of the clustering in a folder."""
    if isinstance(clustering.embedder, TfidfEmbedder):
        return Words(clustering.embedder, clustering.clusters.centres_KD)
    with reading_own(f"The words of the clusters in {folder}", "Cluster again."):
        centres_KD = load_file(folder / "words" / "centres.safetensors")["centres_KD"]
    return Words(load_tfidf(folder / "words"), centres_KD)


def fit(
    sample: Path, words: TfidfConfig, clusters: ClusterConfig, embedder: AnyEmbedder | None = None
) -> Generator[Progress, None, Fitted]:
    """Fits clusters on the documents of a table; the default embedder is tf-idf.

    Raises EngineError for fewer documents or vectors than clusters, and for documents without a word.
    """
    total = num_rows(sample)
    require_enough(total, clusters.num_clusters)
    unspaced = UnspacedText()
    texts = unspaced.count(row["text"] for row in read_rows(sample))
    by_words = yield from forward_progress(fit_tfidf(texts, words, needs_words=embedder is None), total)
    vectors_ND = yield from embed(sample, embedder or by_words)
    clusters_fitted, facts = yield from find_apart(vectors_ND, clusters, embedder or by_words)
    ids = tuple(row["id"] for row in read_rows(sample))
    clustering = FittedClustering(clusters_fitted, embedder or by_words, ids)
    if embedder is None:
        facts = replace(facts, unspaced_share=unspaced.share)
        return Fitted(clustering, Words(by_words, clusters_fitted.centres_KD), facts)
    in_words_ND = yield from embed(sample, by_words, "describe")
    in_words_KD = means(in_words_ND, clusters_fitted.labels_N, clusters_fitted.num_clusters)
    return Fitted(clustering, Words(by_words, in_words_KD), facts)


def find_apart(
    vectors_ND: Floats, config: ClusterConfig, embedder: AnyEmbedder
) -> Generator[Progress, None, tuple[Clusters, SampleFacts]]:
    """Clusters of vectors that differ, and which of them divide equal ones.

    Raises EngineError for fewer different vectors than clusters. Of clusters by lot neither says anything.
    """
    is_random = clusterer_type(config.method).is_random
    positions_N = np.arange(len(vectors_ND)) if is_random else positions(vectors_ND, embedder.rounding)
    if (num_positions := len(np.unique(positions_N))) < config.num_clusters:
        raise EngineError(
            f"The {len(vectors_ND)} documents to fit clusters on have {num_positions} different "
            f"vector{'s' * (num_positions != 1)}, too few for {config.num_clusters} clusters.",
            f"Choose fewer clusters. {BY_HIDDEN_STATES}"
            if isinstance(embedder, TfidfEmbedder)
            else "Choose fewer clusters, or import more text.",
        )
    clusters: Clusters = yield from forward_progress(find_clusters(vectors_ND, config))
    divided_N = is_divided(positions_N, clusters.labels_N)
    num_K = np.bincount(clusters.labels_N, divided_N, minlength=clusters.num_clusters)
    arbitrary = np.flatnonzero(2 * num_K > clusters.sizes)
    return clusters, SampleFacts(int(divided_N.sum()), tuple(arbitrary.tolist()))


def load_facts(folder: Path) -> SampleFacts:
    """The facts in a clustering's folder; none where an earlier version fitted it."""
    file = folder / _FACTS
    if not file.exists():
        return SampleFacts()
    with reading_own(str(file), "Cluster again."):
        facts = json.loads(file.read_text(encoding="utf-8"))
        return SampleFacts(facts["num_divided"], tuple(facts["arbitrary"]), facts["unspaced_share"])


def embed(documents: Path, embedder: AnyEmbedder, phase: str = "embed") -> Generator[Progress, None, Floats]:
    """The vectors [N, D] of the documents in a table."""
    total = num_rows(documents)
    vectors_ND = np.empty((total, embedder.dimension), dtype=np.float32)
    rows, done = read_rows(documents), 0
    while texts := [row["text"] for row in islice(rows, BATCH)]:
        vectors_ND[done : done + len(texts)] = embedder.embed(texts).vectors_ND
        done += len(texts)
        yield Progress(done, total, "documents", "embedding the sample", phase=phase)
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


@dataclass(frozen=True)
class LabelOverlap:
    """Documents by label and cluster (C-BTM figure 16), and the mutual information of both.

    counts_LK: numbers of documents. normalised_mutual_information: 0 for independence, 1 for a one-to-one relation
    (normalised by the arithmetic mean of the entropies). Documents without a label are left out.
    """

    labels: tuple[str, ...]
    counts_LK: NDArray[np.int64]
    normalised_mutual_information: float


def label_overlap(labels_N: Labels, names: Sequence[str | None], num_clusters: int) -> LabelOverlap:
    """The overlap of clusters with labels, such as domains; raises EngineError when no document has a label."""
    from sklearn.metrics import normalized_mutual_info_score  # imported late: it takes a second

    if len(names) != len(labels_N):
        problem = f"There are {len(names)} labels for {len(labels_N)} documents."
        raise EngineError(problem, "Give a label or None for each document.")
    labelled = np.array([name is not None for name in names], dtype=np.bool_)
    if not labelled.any():
        raise EngineError("No document has a label.", "Name a field of the corpus with labels.")
    labels, rows = np.unique([name for name in names if name is not None], return_inverse=True)
    columns = labels_N[labelled]
    counts_LK = np.zeros((len(labels), num_clusters), dtype=np.int64)
    np.add.at(counts_LK, (rows, columns), 1)
    information = float(normalized_mutual_info_score(rows, columns))
    return LabelOverlap(tuple(labels.tolist()), counts_LK, information)


Centres = NDArray[np.float32]


@dataclass(frozen=True)
class Edited:
    """The result of an edit.

    `before` [K]: the former number of each cluster, None for a new one; `changed`: clusters whose documents changed;
    `merged`: the former numbers of the clusters merged into the changed one.
    """

    fitted: Fitted
    documents: ClusteredDocuments
    before: tuple[int | None, ...]
    changed: frozenset[int]
    merged: frozenset[int] = frozenset()


@dataclass(frozen=True)
class ClusterSplit:
    """The split of one cluster: vectors [M, D] of its documents, their parts, and the word centres of each part."""

    vectors_MD: NDArray[Any]
    labels_M: NDArray[np.int32]
    centres_PD: Centres
    words_PD: Centres


def merge_clusters(fitted: Fitted, documents: ClusteredDocuments, numbers: Sequence[int]) -> Edited:
    """Merges clusters; the new centre is the mean of their centres, weighted by size.

    Documents keep the distance to the centre that they were assigned by.
    """
    clusters = fitted.clustering.clusters
    chosen = sorted(set(numbers))
    if len(chosen) < 2 or chosen[0] < 0 or chosen[-1] >= clusters.num_clusters:
        problem = f"Cannot merge the clusters {chosen}: name at least two of the {clusters.num_clusters}."
        raise EngineError(problem, "Choose other clusters.")
    remaining = np.setdiff1d(np.arange(clusters.num_clusters), chosen[1:])
    now_K = np.searchsorted(remaining, np.arange(clusters.num_clusters))
    now_K[chosen] = now_K[chosen[0]]
    sizes = np.array(documents.sizes(clusters.num_clusters))[chosen] + 1e-9  # empty ones count alike
    shares = sizes / sizes.sum()

    def combine(centres_KD: Centres) -> Centres:
        merged_KD = centres_KD[remaining]
        merged_KD[now_K[chosen[0]]] = shares @ centres_KD[chosen]
        return merged_KD

    after = _with_centres(
        fitted, combine(clusters.centres_KD), combine(fitted.words.centres_KD), now_K[clusters.labels_N]
    )
    relabelled = replace(documents, labels_N=now_K[documents.labels_N].astype(np.int32))
    changed = frozenset({int(now_K[chosen[0]])})
    return Edited(after, relabelled, tuple(remaining.tolist()), changed, frozenset(chosen[1:]))


def split_cluster(fitted: Fitted, documents: ClusteredDocuments, number: int, parts: ClusterSplit) -> Edited:
    """Splits a cluster; its pinned documents stay in the first part."""
    clusters, members_M = fitted.clustering.clusters, documents.members(number)
    numbers_P = np.array([number, *range(clusters.num_clusters, clusters.num_clusters + len(parts.centres_PD) - 1)])
    is_pinned_M = documents.is_pinned_N[members_M]
    labels_N, squared_N = documents.labels_N.copy(), documents.squared_distances_N.copy()
    labels_N[members_M] = np.where(is_pinned_M, number, numbers_P[parts.labels_M])
    squared_N[members_M] = squared_lengths(parts.vectors_MD - parts.centres_PD[parts.labels_M])
    places = places_of(as_ids(fitted.clustering.document_ids), documents.ids_N)
    is_moved = (places >= 0) & (clusters.labels_N == number)
    fit_labels_N = np.where(is_moved, labels_N[places], clusters.labels_N)

    def with_parts(centres_KD: Centres, parts_PD: Centres) -> Centres:
        centres_with_parts_KD = np.concatenate([centres_KD, parts_PD[1:]])
        centres_with_parts_KD[number] = parts_PD[0]
        return centres_with_parts_KD

    after = _with_centres(
        fitted,
        with_parts(clusters.centres_KD, parts.centres_PD),
        with_parts(fitted.words.centres_KD, parts.words_PD),
        fit_labels_N,
    )
    before = [*range(clusters.num_clusters), *[None] * (len(numbers_P) - 1)]
    relabelled = replace(documents, labels_N=labels_N, squared_distances_N=squared_N)
    return Edited(after, relabelled, tuple(before), frozenset(numbers_P.tolist()))


def pin_documents(fitted: Fitted, documents: ClusteredDocuments, chosen: NDArray[np.intp], number: int) -> Edited:
    """Assigns documents to a cluster by hand; the centres do not change."""
    labels_N, is_pinned_N = documents.labels_N.copy(), documents.is_pinned_N.copy()
    left = labels_N[chosen][labels_N[chosen] != number]
    labels_N[chosen], is_pinned_N[chosen] = number, True
    before = tuple(range(fitted.clustering.clusters.num_clusters))
    changed = frozenset({*left.tolist(), number}) if len(left) else frozenset()
    return Edited(fitted, replace(documents, labels_N=labels_N, is_pinned_N=is_pinned_N), before, changed)


def _with_centres(fitted: Fitted, centres_KD: Centres, words_KD: Centres, labels_N: NDArray[Any]) -> Fitted:
    clusters: Clusters = replace(
        fitted.clustering.clusters, centres_KD=centres_KD.astype(np.float32), labels_N=labels_N.astype(np.int32)
    )
    words = Words(fitted.words.embedder, words_KD.astype(np.float32))
    return Fitted(replace(fitted.clustering, clusters=clusters), words)
