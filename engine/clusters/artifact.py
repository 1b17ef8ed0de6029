"""A stored clustering: the clusters, their embedder and the documents they were fitted on.

A folder of safetensors and JSON with a subfolder `embedder/`. Documents are identified by the SHA-256 of their text,
so moving them changes nothing and a changed corpus is noticed.
Shapes: N documents, K clusters.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from engine.clusters.centroids import Clusters, Labels, squared_distances
from engine.clusters.clusterer_type import clusterer_type
from engine.clusters.documents import ClusteredDocuments, Mapped, SourceDocument, as_ids, places_of
from engine.clusters.embedders.base import AnyEmbedder, Vectors
from engine.clusters.embedders.hidden_states import HiddenStateEmbedder, load_hidden_states
from engine.clusters.embedders.tfidf_svd import TfidfEmbedder, load_tfidf
from engine.clusters.kmeans import drawn_cluster
from engine.errors import DamagedFileError, EngineError
from engine.events import Progress
from engine.files import ArtifactRef, folder_size, reading_own
from engine.text.split_names import SPLITS

_CARD, _TENSORS, _EMBEDDER = "clustering.json", "clustering.safetensors", "embedder"
BATCH = 256  # documents embedded at once
_MOST = 4  # clusterings in memory


def load_embedder(folder: Path, seed: Path | None = None, device: str = "cpu") -> AnyEmbedder:
    """Loads an embedder that gives bit-identical vectors on the same device.

    `seed` is the model's folder for a hidden-state embedder, and `device` names where it computes. Raises
    DamagedFileError for an invalid or changed embedder.
    """
    with reading_own(f"The embedder in {folder}", "Cluster again."):
        kind = json.loads((folder / "embedder.json").read_text(encoding="utf-8"))["kind"]
    if kind == HiddenStateEmbedder.kind:
        return load_hidden_states(folder, seed, device)
    if kind == TfidfEmbedder.kind:
        return load_tfidf(folder)
    raise DamagedFileError(f"The embedder in {folder} is of an unknown kind: “{kind}”.", "Cluster again.")


@dataclass(frozen=True)
class PlacedDocuments:
    """A batch of assigned documents: vectors [N, D], clusters [N], squared distances [N, K], and which are blank."""

    vectors_ND: Vectors
    labels_N: Labels
    squared_distances_NK: NDArray[np.float64]
    is_blank_N: NDArray[np.bool_]


@dataclass(frozen=True)
class FittedClustering:
    """Clusters, the embedder of their centres, and the ids of the documents they were fitted on."""

    clusters: Clusters
    embedder: AnyEmbedder
    document_ids: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.document_ids) != len(self.clusters.labels_N):
            raise EngineError(
                f"There are {len(self.document_ids)} ids for {len(self.clusters.labels_N)} documents.",
                "Give the SHA-256 of each text, in the order of the vectors.",
            )

    def place(self, texts: Sequence[str]) -> PlacedDocuments:
        """The nearest cluster of each text, with unconstrained sizes; random clusters assign by hash instead."""
        embedding = self.embedder.embed(texts)
        if not np.isfinite(embedding.vectors_ND).all():
            raise EngineError(
                "The vectors of some documents are not finite numbers.", "Cluster again, by words or with another seed."
            )
        distances_NK = squared_distances(embedding.vectors_ND, self.clusters.centres_KD)
        labels_N = distances_NK.argmin(1).astype(np.int32)
        if clusterer_type(self.clusters.method).is_random:
            number, seed = self.clusters.num_clusters, self.clusters.seed
            labels_N = np.array([drawn_cluster(text, number, seed) for text in texts], dtype=np.int32)
        return PlacedDocuments(embedding.vectors_ND, labels_N, distances_NK, embedding.is_blank_N)

    def save(self, folder: Path) -> None:
        """Writes the clustering into an empty folder."""
        clusters = self.clusters
        tensors: dict[str, NDArray[Any]] = {
            "centres_KD": clusters.centres_KD,
            "labels_N": clusters.labels_N,
            "costs": np.array(clusters.costs),
            "document_ids": np.frombuffer(bytes.fromhex("".join(self.document_ids)), dtype=np.uint8).reshape(-1, 32),
        }
        save_file(tensors, folder / _TENSORS)
        card = {"method": clusters.method, "seed": clusters.seed, "embedder_sha256": self.embedder.sha256}
        (folder / _CARD).write_text(json.dumps(card, indent=1), encoding="utf-8")
        (folder / _EMBEDDER).mkdir()
        self.embedder.save(folder / _EMBEDDER)


def open_clustering(artifact: ArtifactRef, seed: ArtifactRef | None = None, device: str = "cpu") -> FittedClustering:
    """Loads a clustering after its files were checked against the manifest."""
    artifact.check()
    return load_clustering(artifact.folder, seed, device)


def load_clustering(folder: Path, seed: ArtifactRef | None = None, device: str = "cpu") -> FittedClustering:
    """Loads a clustering; `seed` is the model of a hidden-state embedder on `device`, whose files are checked."""
    with reading_own(f"The clustering in {folder}", "Cluster again."):
        card = json.loads((folder / _CARD).read_text(encoding="utf-8"))
        tensors = load_file(folder / _TENSORS)
        clusters = Clusters(
            card["method"], card["seed"], tensors["centres_KD"], tensors["labels_N"], tuple(tensors["costs"].tolist())
        )
        ids = tuple(row.tobytes().hex() for row in tensors["document_ids"])
        embedder_sha256 = str(card["embedder_sha256"])
    if seed is not None:
        seed.check()
    embedder = load_embedder(folder / _EMBEDDER, seed.folder if seed else None, device)
    if embedder.sha256 != embedder_sha256:
        raise DamagedFileError(
            f"The embedder in {folder} is not the one that its clusters were fitted with.", "Cluster again."
        )
    return FittedClustering(clusters, embedder, ids)


class ClusteringCache:
    """The clusterings that were needed last, each counted as the bytes of its files: an embedder may be a model."""

    def __init__(self, device: str = "cpu") -> None:
        self._device = device  # where the model of an embedder computes
        self._clusterings: OrderedDict[tuple[ArtifactRef, ArtifactRef | None], tuple[FittedClustering, int]] = (
            OrderedDict()
        )
        self._lock = Lock()

    def get(self, kept: ArtifactRef, seed: ArtifactRef | None) -> FittedClustering:
        """A clustering, with the seed model that its embedder reads with, if any."""
        with self._lock:
            if (kept, seed) not in self._clusterings:
                num_bytes = sum(folder_size(one.folder) for one in (kept, seed) if one)
                self._clusterings[kept, seed] = open_clustering(kept, seed, self._device), num_bytes
            self._clusterings.move_to_end((kept, seed))
            while len(self._clusterings) > _MOST:
                self._clusterings.popitem(last=False)
            return self._clusterings[kept, seed][0]

    def num_bytes(self) -> int:
        """The bytes of all clusterings."""
        return sum(num_bytes for _, num_bytes in [*self._clusterings.values()])


Columns = dict[str, NDArray[Any]]


def place(
    clustering: FittedClustering, documents: Iterable[SourceDocument], total: int, map_share: float = 1.0
) -> Generator[Progress, None, tuple[ClusteredDocuments, Mapped]]:
    """Assigns documents; returns them in the order of their ids, and vectors of a share of them for the map.

    `total` is the approximate number of documents, for the progress.
    """
    order = np.argsort(as_ids(clustering.document_ids))
    fitted = as_ids(clustering.document_ids)[order], clustering.clusters.labels_N[order]
    stream, parts, done = iter(documents), [_columns(clustering, [], fitted, map_share)], 0
    while batch := list(islice(stream, BATCH)):
        parts.append(_columns(clustering, batch, fitted, map_share))
        done += len(batch)
        yield Progress(done, max(total, done), "documents", "assigning documents to clusters", phase="assign")
    return _in_order({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})


def _columns(
    clustering: FittedClustering,
    batch: Sequence[SourceDocument],
    fitted: tuple[NDArray[Any], NDArray[np.int32]],
    map_share: float,
) -> Columns:
    placed = clustering.place([document.text for document in batch])
    ids_N = as_ids([document.id for document in batch])
    places = places_of(ids_N, fitted[0])
    labels_N = np.where(places >= 0, fitted[1][places], placed.labels_N)
    is_mapped_N = np.array([int(document.id[-8:], 16) < map_share * 2**32 for document in batch], dtype=np.bool_)
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


def _in_order(columns: Columns) -> tuple[ClusteredDocuments, Mapped]:
    vectors_MD, is_mapped_N = columns.pop("vectors_MD"), columns.pop("is_mapped_N")
    order_N = np.argsort(columns["ids_N"])
    row_of_N = np.cumsum(is_mapped_N) - 1  # in the vectors
    documents_M = np.flatnonzero(is_mapped_N[order_N])
    mapped = Mapped(documents_M.astype(np.int32), vectors_MD[row_of_N[order_N[documents_M]]])
    return ClusteredDocuments(**{name: column[order_N] for name, column in columns.items()}), mapped
