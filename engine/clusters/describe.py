"""What a cluster is about: its words, and how it goes with labels that were there before.

Shapes: N documents, K clusters, D dimensions, L labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import normalized_mutual_info_score

from engine.clusters.centroids import Labels
from engine.clusters.embedders.tfidf_svd import TfidfEmbedder
from engine.errors import EngineError


@dataclass(frozen=True)
class LabelOverlap:
    """Documents with each label in each cluster (C-BTM figure 16), and how much one tells of the other.

    counts_LK: numbers of documents. normalised_mutual_information: 0 for no relation, 1 where each gives the other
    away (the arithmetic mean of the entropies below the line). Documents without a label are only counted.
    """

    labels: tuple[str, ...]
    counts_LK: NDArray[np.int64]
    normalised_mutual_information: float
    num_unlabelled: int

    @property
    def shares_LK(self) -> NDArray[np.float64]:
        """The share of a label's documents that is in each cluster; each row sums to 1."""
        shares: NDArray[np.float64] = self.counts_LK / self.counts_LK.sum(1, keepdims=True)
        return shares


def top_terms(embedder: TfidfEmbedder, centres_KD: NDArray[Any], num_terms: int = 10) -> list[list[str]]:
    """The words that speak most for each centre, the strongest first: its way back through scaling and SVD (§A.1)."""
    found = []
    for centre_D in centres_KD:
        scores_W = embedder.word_scores(centre_D[None])[0]
        found.append([embedder.vocabulary[number] for number in np.argsort(-scores_W, kind="stable")[:num_terms]])
    return found


def label_overlap(labels_N: Labels, names: Sequence[str | None], num_clusters: int) -> LabelOverlap:
    """How clusters go with metadata, such as domains; raises EngineError when no document has a label."""
    if len(names) != len(labels_N):
        problem = f"Each document must have a label or None, but {len(names)} came for {len(labels_N)} documents."
        raise EngineError(problem, "Give them in the order of the documents.")
    labelled = np.array([name is not None for name in names], dtype=np.bool_)
    if not labelled.any():
        raise EngineError("Some document must have a label, but none has.", "Name a field of the corpus with labels.")
    labels, rows = np.unique([name for name in names if name is not None], return_inverse=True)
    columns = labels_N[labelled]
    counts_LK = np.zeros((len(labels), num_clusters), dtype=np.int64)
    np.add.at(counts_LK, (rows, columns), 1)
    information = float(normalized_mutual_info_score(rows, columns))
    return LabelOverlap(tuple(labels.tolist()), counts_LK, information, int((~labelled).sum()))
