"""A stored clustering: the clusters, their embedder and the documents they were fitted on.

A folder of safetensors and JSON with a subfolder `embedder/`. Documents are identified by the SHA-256 of their text,
so moving them changes nothing and a changed corpus is noticed.
Shapes: N documents, K clusters.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from engine.clusters.centroids import Clusters, Labels, squared_distances
from engine.clusters.clusterer_type import clusterer_type
from engine.clusters.embedders.base import AnyEmbedder, Vectors
from engine.clusters.embedders.hidden_states import HiddenStateEmbedder, load_hidden_states
from engine.clusters.embedders.tfidf_svd import TfidfEmbedder, load_tfidf
from engine.clusters.random_clusters import drawn_cluster
from engine.errors import DamagedFileError, EngineError
from engine.files import ArtifactRef


def load_embedder(folder: Path, seed: Path | None = None, device: str = "cpu") -> AnyEmbedder:
    """Loads an embedder that gives bit-identical vectors on the same device.

    `seed` is the model's folder for a hidden-state embedder, and `device` names where it computes. Raises
    DamagedFileError for an invalid or changed embedder.
    """
    try:
        kind = json.loads((folder / "embedder.json").read_text(encoding="utf-8"))["kind"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedFileError(f"The embedder in {folder} cannot be read ({error}).", "Cluster again.") from error
    if kind == HiddenStateEmbedder.kind:
        return load_hidden_states(folder, seed, device)
    if kind == TfidfEmbedder.kind:
        return load_tfidf(folder)
    raise DamagedFileError(f"The embedder in {folder} is of an unknown kind: “{kind}”.", "Cluster again.")


_CARD, _TENSORS, _EMBEDDER = "clustering.json", "clustering.safetensors", "embedder"


@dataclass(frozen=True)
class Placed:
    """A batch of assigned documents: vectors [N, D], clusters [N], squared distances [N, K], and which are blank."""

    vectors_ND: Vectors
    labels_N: Labels
    squared_distances_NK: NDArray[np.float64]
    is_blank_N: NDArray[np.bool_]


@dataclass(frozen=True)
class Clustering:
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

    def place(self, texts: Sequence[str]) -> Placed:
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
        return Placed(embedding.vectors_ND, labels_N, distances_NK, embedding.is_blank_N)

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


def open_clustering(artifact: ArtifactRef, seed: ArtifactRef | None = None, device: str = "cpu") -> Clustering:
    """Loads a clustering after its files were checked against the manifest."""
    artifact.check()
    return load_clustering(artifact.folder, seed, device)


def load_clustering(folder: Path, seed: ArtifactRef | None = None, device: str = "cpu") -> Clustering:
    """Loads a clustering; `seed` is the model of a hidden-state embedder on `device`, whose files are checked."""
    try:
        card = json.loads((folder / _CARD).read_text(encoding="utf-8"))
        tensors = load_file(folder / _TENSORS)
        clusters = Clusters(
            card["method"], card["seed"], tensors["centres_KD"], tensors["labels_N"], tuple(tensors["costs"].tolist())
        )
        ids = tuple(row.tobytes().hex() for row in tensors["document_ids"])
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise DamagedFileError(f"The clustering in {folder} cannot be read ({error}).", "Cluster again.") from error
    if seed is not None:
        seed.check()
    embedder = load_embedder(folder / _EMBEDDER, seed.folder if seed else None, device)
    if embedder.sha256 != card["embedder_sha256"]:
        raise DamagedFileError(
            f"The embedder in {folder} is not the one that its clusters were fitted with.", "Cluster again."
        )
    return Clustering(clusters, embedder, ids)
