"""Describes clusters by their top words and their overlap with labels.

Shapes: N documents, K clusters, D dimensions, L labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.clusters.centroids import Labels
from engine.clusters.embedders.tfidf_svd import TfidfEmbedder
from engine.errors import EngineError

LONGEST_TERM = 30  # characters of a word that is shown


@dataclass(frozen=True)
class LabelOverlap:
    """Documents by label and cluster (C-BTM figure 16), and the mutual information of both.

    counts_LK: numbers of documents. normalised_mutual_information: 0 for independence, 1 for a one-to-one relation
    (normalised by the arithmetic mean of the entropies). Documents without a label are left out.
    """

    labels: tuple[str, ...]
    counts_LK: NDArray[np.int64]
    normalised_mutual_information: float

    @property
    def shares_LK(self) -> NDArray[np.float64]:
        """The share of a label's documents that is in each cluster; each row sums to 1."""
        shares: NDArray[np.float64] = self.counts_LK / self.counts_LK.sum(1, keepdims=True)
        return shares


def top_terms(embedder: TfidfEmbedder, centres_KD: NDArray[Any], num_terms: int = 10) -> list[list[str]]:
    """The highest-scoring words of each centre, mapped back through scaling and SVD (§A.1)."""
    terms = []
    for centre_D in centres_KD:
        scores_W = embedder.word_scores(centre_D[None])[0]
        best = np.argsort(-scores_W, kind="stable")[:num_terms]
        terms.append([_shown(embedder.vocabulary[number]) for number in best])
    return terms


def _shown(word: str) -> str:
    """A word that fits into a table."""
    return word if len(word) <= LONGEST_TERM else f"{word[: LONGEST_TERM - 1]}…"


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
