"""Every document of a clustering: its cluster, where it lies, and where it stands on the map.

Ids and small numbers, no text, so that all of them fit into memory: 48 bytes each.
Shapes: N documents, M of them on the map, K clusters, D dimensions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from engine.clusters.sources import Ids, as_ids, hex_of, shown
from engine.errors import CorpusError, DamagedFile
from engine.text.split import SPLITS

_FILE, _MAPPED = "documents.safetensors", "mapped.safetensors"


@dataclass(frozen=True)
class Changes:
    """Documents that are no longer there, and documents that were not there then: SHA-256 of texts, sorted."""

    missing: tuple[str, ...]
    new: tuple[str, ...]


@dataclass(frozen=True)
class ClusteredDocuments:
    """Documents in the order of their ids.

    `splits_N` are places in SPLITS, `sources_N` in the clustering's sources. Blank: without anything the embedder
    knows. Fitted: the centres come from them. Pinned: a person put them where they are.
    """

    ids_N: Ids
    labels_N: NDArray[np.int32]
    splits_N: NDArray[np.uint8]
    sources_N: NDArray[np.int32]
    squared_distances_N: NDArray[np.float32]  # to the centre of the cluster that it was placed in
    is_blank_N: NDArray[np.bool_]
    is_fitted_N: NDArray[np.bool_]
    is_pinned_N: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.ids_N)

    @property
    def num_blank(self) -> int:
        return int(self.is_blank_N.sum())

    def sizes(self, num_clusters: int) -> list[int]:
        """Documents in each cluster."""
        sizes: list[int] = np.bincount(self.labels_N, minlength=num_clusters).tolist()
        return sizes

    def members(self, cluster: int) -> NDArray[np.intp]:
        """The numbers of a cluster's documents."""
        return np.flatnonzero(self.labels_N == cluster)

    def nearest(self, cluster: int, number: int = 5) -> list[str]:
        """The ids of the documents nearest to their cluster's centre; those that a person put there are left out."""
        members = np.flatnonzero((self.labels_N == cluster) & ~self.is_pinned_N)
        order = np.argsort(self.squared_distances_N[members], kind="stable")[:number]
        return hex_of(self.ids_N[members[order]])

    def id(self, number: int) -> str:
        """The id of a document by its number."""
        return hex_of(self.ids_N[number : number + 1])[0]

    def split(self, number: int) -> str:
        """The split of a document by its number."""
        return SPLITS[self.splits_N[number]]

    def numbers(self, ids: Iterable[str]) -> NDArray[np.intp]:
        """The numbers of documents; a beginning of 8 digits or more will do. Raises CorpusError naming the others."""
        wanted = list(ids)
        found = [self._number(id) for id in wanted]
        missing = [id for id, place in zip(wanted, found, strict=True) if place is None]
        if missing:
            raise CorpusError(
                f"Every document named must be in the clustering, but {len(missing)} of {len(wanted)} are not: "
                f"{shown(missing)}.",
                "A document is named by the SHA-256 of its text, or 8 digits of it and more.",
            )
        return np.array(found, dtype=np.intp)

    def _number(self, id: str) -> int | None:
        digits = id.lower()
        if not 8 <= len(digits) <= 64 or set(digits) - set("0123456789abcdef"):
            return None
        place = int(np.searchsorted(self.ids_N, as_ids([digits.ljust(64, "0")])[0]))
        if place == len(self) or not self.id(place).startswith(digits):
            return None
        is_only = place + 1 == len(self) or not self.id(place + 1).startswith(digits)
        return place if is_only else None

    def changes(self, present_ids: Ids) -> Changes:
        """How documents (sorted ids) differ from those of the clustering."""
        missing = np.setdiff1d(self.ids_N, present_ids, assume_unique=True)
        new = np.setdiff1d(present_ids, self.ids_N, assume_unique=True)
        return Changes(tuple(hex_of(missing)), tuple(hex_of(new)))

    def save(self, folder: Path) -> None:
        """Writes the documents into a folder."""
        save_file(_tensors(self), folder / _FILE)


@dataclass(frozen=True)
class Mapped:
    """Numbers of the documents on the map, and their vectors."""

    documents_M: NDArray[np.int32]
    vectors_MD: NDArray[np.float32]

    def without_vectors(self) -> Mapped:
        """The numbers alone: once the map is drawn, nobody needs the vectors."""
        return Mapped(self.documents_M, self.vectors_MD[:, :0])

    def save(self, folder: Path) -> None:
        """Writes both into a folder."""
        save_file({"documents_M": self.documents_M, "vectors_MD": self.vectors_MD}, folder / _MAPPED)


def load_documents(folder: Path) -> ClusteredDocuments:
    """The documents as they were saved; raises DamagedFile."""
    try:
        found = load_file(folder / _FILE)
        ids_N = np.ascontiguousarray(found.pop("ids_N")).view("S32").reshape(-1)
        return ClusteredDocuments(ids_N=ids_N, **found)
    except (OSError, KeyError, TypeError, ValueError, SafetensorError) as error:
        raise DamagedFile(f"{folder} must list a clustering's documents, but does not ({error}).", _AGAIN) from error


def load_mapped(folder: Path) -> Mapped:
    """What was saved of the map; raises DamagedFile."""
    try:
        return Mapped(**load_file(folder / _MAPPED))
    except (OSError, TypeError, SafetensorError) as error:
        raise DamagedFile(f"{folder} must hold vectors of a map, but does not ({error}).", _AGAIN) from error


def join(parts: Sequence[tuple[ClusteredDocuments, Mapped]]) -> tuple[ClusteredDocuments, Mapped]:
    """Parts in the order of their ids as one."""
    names = list(ClusteredDocuments.__dataclass_fields__)
    whole = {name: np.concatenate([getattr(documents, name) for documents, _ in parts]) for name in names}
    starts = np.cumsum([0, *(len(documents) for documents, _ in parts)])
    documents_M = [mapped.documents_M + start for start, (_, mapped) in zip(starts, parts, strict=False)]
    vectors_MD = np.concatenate([mapped.vectors_MD for _, mapped in parts])
    return ClusteredDocuments(**whole), Mapped(np.concatenate(documents_M).astype(np.int32), vectors_MD)


def _tensors(documents: ClusteredDocuments) -> dict[str, NDArray[Any]]:
    found = {name: getattr(documents, name) for name in ClusteredDocuments.__dataclass_fields__}
    ids = np.ascontiguousarray(found["ids_N"]).view(np.uint8).reshape(-1, 32)
    return {**{name: np.ascontiguousarray(array) for name, array in found.items()}, "ids_N": ids}


_AGAIN = "Cluster again."
