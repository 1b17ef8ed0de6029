"""A clustering as a person changes it: clusters merged, split again, documents pinned.

Cluster numbers are those of the centres, without a gap: a merge gives its cluster the least of the numbers and moves
the higher ones down, a split keeps the number for its first part and puts the others at the end.
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
    """What an edit leaves.

    `before` [K]: the number that each cluster had, None for a new one; `changed`: numbers of clusters that hold other
    documents now; `merged`: those that went into the changed one, by the numbers that they had.
    """

    fitted: Fitted
    documents: ClusteredDocuments
    before: tuple[int | None, ...]
    changed: frozenset[int]
    merged: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Part:
    """One cluster looked at again: vectors [M, D] of its documents, where they went, and the words of each part."""

    vectors_MD: NDArray[Any]
    labels_M: NDArray[np.int32]
    centres_PD: Centres
    words_PD: Centres


def merge(fitted: Fitted, documents: ClusteredDocuments, numbers: Sequence[int]) -> Edited:
    """One cluster of several, its centre the mean of theirs, each counting as often as it has documents.

    Documents keep the distance to the centre that they were placed by.
    """
    clusters = fitted.clustering.clusters
    chosen = sorted(set(numbers))
    if len(chosen) < 2 or chosen[0] < 0 or chosen[-1] >= clusters.num_clusters:
        problem = f"Clusters to merge must be at least two of the {clusters.num_clusters}, but are {chosen} instead."
        raise EngineError(problem, "Name two of them.")
    kept = np.setdiff1d(np.arange(clusters.num_clusters), chosen[1:])
    now_K = np.searchsorted(kept, np.arange(clusters.num_clusters))
    now_K[chosen] = now_K[chosen[0]]
    sizes = np.array(documents.sizes(clusters.num_clusters))[chosen] + 1e-9  # empty ones count alike
    shares = sizes / sizes.sum()

    def merged(centres_KD: Centres) -> Centres:
        together = centres_KD[kept]
        together[now_K[chosen[0]]] = shares @ centres_KD[chosen]
        return together

    after = _moved(fitted, merged(clusters.centres_KD), merged(fitted.words.centres_KD), now_K[clusters.labels_N])
    relabelled = replace(documents, labels_N=now_K[documents.labels_N].astype(np.int32))
    changed = frozenset({int(now_K[chosen[0]])})
    return Edited(after, relabelled, tuple(kept.tolist()), changed, frozenset(chosen[1:]))


def split(fitted: Fitted, documents: ClusteredDocuments, number: int, parts: Part) -> Edited:
    """Several clusters of one; what a person pinned to it stays in the first part."""
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
        found = np.concatenate([centres_KD, parts_PD[1:]])
        found[number] = parts_PD[0]
        return found

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
    """Documents put into a cluster by hand; centres stay where they are."""
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
