"""Edits of a clustering by a user: merges and splits of clusters, pinned documents.

Cluster numbers are consecutive indices of the centres: a merged cluster gets the least of its numbers and higher ones
move down; a split keeps the number for its first part and appends the others.
Shapes: N documents, M of one cluster, K clusters, P parts, D dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.clusters.centroids import Clusters, squared_lengths
from engine.clusters.documents import ClusteredDocuments
from engine.clusters.fitting import Fitted, Words
from engine.clusters.sources import as_ids, places_of
from engine.errors import EngineError

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


def merge(fitted: Fitted, documents: ClusteredDocuments, numbers: Sequence[int]) -> Edited:
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

    def merged(centres_KD: Centres) -> Centres:
        merged_KD = centres_KD[remaining]
        merged_KD[now_K[chosen[0]]] = shares @ centres_KD[chosen]
        return merged_KD

    after = _moved(fitted, merged(clusters.centres_KD), merged(fitted.words.centres_KD), now_K[clusters.labels_N])
    relabelled = replace(documents, labels_N=now_K[documents.labels_N].astype(np.int32))
    changed = frozenset({int(now_K[chosen[0]])})
    return Edited(after, relabelled, tuple(remaining.tolist()), changed, frozenset(chosen[1:]))


def split(fitted: Fitted, documents: ClusteredDocuments, number: int, parts: ClusterSplit) -> Edited:
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

    def divided(centres_KD: Centres, parts_PD: Centres) -> Centres:
        centres_with_parts_KD = np.concatenate([centres_KD, parts_PD[1:]])
        centres_with_parts_KD[number] = parts_PD[0]
        return centres_with_parts_KD

    after = _moved(
        fitted,
        divided(clusters.centres_KD, parts.centres_PD),
        divided(fitted.words.centres_KD, parts.words_PD),
        fit_labels_N,
    )
    before = [*range(clusters.num_clusters), *[None] * (len(numbers_P) - 1)]
    relabelled = replace(documents, labels_N=labels_N, squared_distances_N=squared_N)
    return Edited(after, relabelled, tuple(before), frozenset(numbers_P.tolist()))


def pin(fitted: Fitted, documents: ClusteredDocuments, chosen: NDArray[np.intp], number: int) -> Edited:
    """Assigns documents to a cluster by hand; the centres do not change."""
    labels_N, is_pinned_N = documents.labels_N.copy(), documents.is_pinned_N.copy()
    left = labels_N[chosen][labels_N[chosen] != number]
    labels_N[chosen], is_pinned_N[chosen] = number, True
    before = tuple(range(fitted.clustering.clusters.num_clusters))
    changed = frozenset({*left.tolist(), number}) if len(left) else frozenset()
    return Edited(fitted, replace(documents, labels_N=labels_N, is_pinned_N=is_pinned_N), before, changed)


def _moved(fitted: Fitted, centres_KD: Centres, words_KD: Centres, labels_N: NDArray[Any]) -> Fitted:
    clusters: Clusters = replace(
        fitted.clustering.clusters, centres_KD=centres_KD.astype(np.float32), labels_N=labels_N.astype(np.int32)
    )
    words = Words(fitted.words.embedder, words_KD.astype(np.float32))
    return Fitted(replace(fitted.clustering, clusters=clusters), words)
