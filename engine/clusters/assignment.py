"""Assigns the documents of a shard to their nearest cluster (C-BTM §2.1), streamed.

Documents that the clusters were fitted on keep their fitted cluster, so that balanced clusters stay balanced.
Shapes: N documents, M of them on the map, D dimensions.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.clusters.artifact import Clustering
from engine.clusters.documents import ClusteredDocuments, Mapped
from engine.clusters.fitting import BATCH
from engine.clusters.sources import SourceDocument, as_ids, places_of
from engine.events import Progress
from engine.text.split_names import SPLITS

Columns = dict[str, NDArray[Any]]


def place(
    clustering: Clustering, documents: Iterable[SourceDocument], total: int, map_share: float = 1.0
) -> Generator[Progress, None, tuple[ClusteredDocuments, Mapped]]:
    """Assigns documents; returns them in the order of their ids, and vectors of a share of them for the map.

    `total` is the approximate number of documents, for the progress.
    """
    order = np.argsort(as_ids(clustering.document_ids))
    fitted = as_ids(clustering.document_ids)[order], clustering.clusters.labels_N[order]
    stream, parts, done = iter(documents), [_empty(clustering)], 0
    while batch := list(islice(stream, BATCH)):
        parts.append(_columns(clustering, batch, fitted, map_share))
        done += len(batch)
        yield Progress(done, max(total, done), "documents", "assigning documents to clusters")
    return _in_order({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})


def _columns(
    clustering: Clustering,
    batch: Sequence[SourceDocument],
    fitted: tuple[NDArray[Any], NDArray[np.int32]],
    map_share: float,
) -> Columns:
    placed = clustering.place([document.text for document in batch])
    ids_N = as_ids([document.id for document in batch])
    places = places_of(ids_N, fitted[0])
    labels_N = np.where(places >= 0, fitted[1][places], placed.labels_N)
    is_mapped_N = np.array([int(document.id[-8:], 16) < map_share * 2**32 for document in batch])
    return {
        "ids_N": ids_N,
        "labels_N": labels_N.astype(np.int32),
        "splits_N": np.array([SPLITS.index(document.split) for document in batch], dtype=np.uint8),
        "sources_N": np.array([document.source for document in batch], dtype=np.int32),
        "num_bytes_N": np.array([len(document.text.encode()) for document in batch], dtype=np.int64),
        "squared_distances_N": placed.squared_distances_NK[np.arange(len(batch)), labels_N].astype(np.float32),
        "is_blank_N": placed.is_blank_N,
        "is_fitted_N": places >= 0,
        "is_pinned_N": np.zeros(len(batch), dtype=np.bool_),
        "is_mapped_N": is_mapped_N,
        "vectors_MD": placed.vectors_ND[is_mapped_N].astype(np.float32),
    }


def _empty(clustering: Clustering) -> Columns:
    """Empty columns."""
    flags = ("is_blank_N", "is_fitted_N", "is_pinned_N", "is_mapped_N")
    types: dict[str, Any] = {
        "ids_N": "S32",
        "labels_N": np.int32,
        "splits_N": np.uint8,
        "sources_N": np.int32,
        "num_bytes_N": np.int64,
        "squared_distances_N": np.float32,
        **dict.fromkeys(flags, np.bool_),
    }
    empty: Columns = {name: np.empty(0, dtype=dtype) for name, dtype in types.items()}
    return {**empty, "vectors_MD": np.empty((0, clustering.embedder.dimension), dtype=np.float32)}


def _in_order(columns: Columns) -> tuple[ClusteredDocuments, Mapped]:
    vectors_MD, is_mapped_N = columns.pop("vectors_MD"), columns.pop("is_mapped_N")
    order_N = np.argsort(columns["ids_N"])
    row_of_N = np.cumsum(is_mapped_N) - 1  # in the vectors
    documents_M = np.flatnonzero(is_mapped_N[order_N])
    mapped = Mapped(documents_M.astype(np.int32), vectors_MD[row_of_N[order_N[documents_M]]])
    return ClusteredDocuments(**{name: column[order_N] for name, column in columns.items()}), mapped
