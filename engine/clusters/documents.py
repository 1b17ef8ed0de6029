"""The documents of a clustering: cluster, source, split and place on the map.

Ids and small numbers without text, 48 bytes each, so that all fit into memory.
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
from engine.errors import CorpusError, DamagedFileError
from engine.text.split_names import SPLITS, Split

_FILE, _MAPPED = "documents.safetensors", "mapped.safetensors"


@dataclass(frozen=True)
class Changes:
    """Documents that were removed and documents that were added: SHA-256 of texts, sorted."""

    missing: tuple[str, ...]
    new: tuple[str, ...]


@dataclass(frozen=True)
class ClusteredDocuments:
    """Documents in the order of their ids.

    `splits_N` are indices into SPLITS, `sources_N` into the clustering's sources. Blank: without known words. Fitted:
    the centres were fitted on them. Pinned: assigned by a user.
    """

    ids_N: Ids
    labels_N: NDArray[np.int32]
    splits_N: NDArray[np.uint8]
    sources_N: NDArray[np.int32]
    squared_distances_N: NDArray[np.float32]  # to the centre of its cluster
    is_blank_N: NDArray[np.bool_]
    is_fitted_N: NDArray[np.bool_]
    is_pinned_N: NDArray[np.bool_]
    num_bytes_N: NDArray[np.int64] | None = None  # of text, in UTF-8; None: clustered before these were stored

    def __len__(self) -> int:
        return len(self.ids_N)

    @property
    def num_blank(self) -> int:
        return int(self.is_blank_N.sum())

    def sizes(self, num_clusters: int) -> list[int]:
        """Documents in each cluster."""
        sizes: list[int] = np.bincount(self.labels_N, minlength=num_clusters).tolist()
        return sizes

    def bytes_of_clusters(self, num_clusters: int) -> list[int] | None:
        """Bytes of text in each cluster; None if they are not known."""
        if self.num_bytes_N is None:
            return None
        return [int(self.num_bytes_N[self.labels_N == number].sum()) for number in range(num_clusters)]

    @property
    def share_of_longest_tenth(self) -> float | None:
        """The share of all bytes that is in the longest tenth of the documents; None if they are not known."""
        if self.num_bytes_N is None or not len(self):
            return None
        longest = np.sort(self.num_bytes_N)[-max(1, len(self) // 10) :]
        return float(longest.sum() / max(1, self.num_bytes_N.sum()))

    def members(self, cluster: int) -> NDArray[np.intp]:
        """The numbers of a cluster's documents."""
        return np.flatnonzero(self.labels_N == cluster)

    def nearest(self, cluster: int, number: int = 5) -> list[str]:
        """The ids of the documents nearest to their cluster's centre, without pinned ones."""
        members = np.flatnonzero((self.labels_N == cluster) & ~self.is_pinned_N)
        order = np.argsort(self.squared_distances_N[members], kind="stable")[:number]
        return hex_of(self.ids_N[members[order]])

    def id(self, number: int) -> str:
        """The id of a document by its number."""
        return hex_of(self.ids_N[number : number + 1])[0]

    def split(self, number: int) -> Split:
        """The split of a document by its number."""
        return SPLITS[int(self.splits_N[number])]

    def numbers(self, ids: Iterable[str]) -> NDArray[np.intp]:
        """The indices of documents by id or its first 8 or more digits. Raises CorpusError that names unknown ids."""
        wanted = list(ids)
        places = [self._number(id) for id in wanted]
        missing = [id for id, place in zip(wanted, places, strict=True) if place is None]
        if missing:
            raise CorpusError(
                f"{len(missing)} of {len(wanted)} documents are not in the clustering: {shown(missing)}.",
                "Name a document by the SHA-256 of its text, or by at least its first 8 digits.",
            )
        return np.array(places, dtype=np.intp)

    def _number(self, id: str) -> int | None:
        digits = id.lower()
        if not 8 <= len(digits) <= 64 or set(digits) - set("0123456789abcdef"):
            return None
        place = int(np.searchsorted(self.ids_N, as_ids([digits.ljust(64, "0")])[0]))
        if place == len(self) or not self.id(place).startswith(digits):
            return None
        is_unique = place + 1 == len(self) or not self.id(place + 1).startswith(digits)
        return place if is_unique else None

    def changes(self, present_ids: Ids) -> Changes:
        """The differences between present documents (sorted ids) and those of the clustering."""
        missing = np.setdiff1d(self.ids_N, present_ids, assume_unique=True)
        new = np.setdiff1d(present_ids, self.ids_N, assume_unique=True)
        return Changes(tuple(hex_of(missing)), tuple(hex_of(new)))

    def save(self, folder: Path) -> None:
        """Writes the documents into a folder."""
        columns = {name: np.ascontiguousarray(column) for name, column in _columns(self).items()}
        save_file({**columns, "ids_N": columns["ids_N"].view(np.uint8).reshape(-1, 32)}, folder / _FILE)


@dataclass(frozen=True)
class Mapped:
    """Numbers of the documents on the map, and their vectors."""

    documents_M: NDArray[np.int32]
    vectors_MD: NDArray[np.float32]

    def without_vectors(self) -> Mapped:
        """The indices without the vectors, which are not needed once the map is drawn."""
        return Mapped(self.documents_M, self.vectors_MD[:, :0])

    def save(self, folder: Path) -> None:
        """Writes both into a folder."""
        save_file({"documents_M": self.documents_M, "vectors_MD": self.vectors_MD}, folder / _MAPPED)


def load_documents(folder: Path) -> ClusteredDocuments:
    """The documents as they were saved; raises DamagedFileError."""
    try:
        tensors = load_file(folder / _FILE)
        ids_N = np.ascontiguousarray(tensors.pop("ids_N")).view("S32").reshape(-1)
        return ClusteredDocuments(ids_N=ids_N, **tensors)
    except (OSError, KeyError, TypeError, ValueError, SafetensorError) as error:
        raise DamagedFileError(f"The documents in {folder} cannot be read ({error}).", _CLUSTER_AGAIN) from error


def load_mapped(folder: Path) -> Mapped:
    """The stored map of a clustering; raises DamagedFileError."""
    try:
        return Mapped(**load_file(folder / _MAPPED))
    except (OSError, TypeError, SafetensorError) as error:
        raise DamagedFileError(f"The map's vectors in {folder} cannot be read ({error}).", _CLUSTER_AGAIN) from error


def join(parts: Sequence[tuple[ClusteredDocuments, Mapped]]) -> tuple[ClusteredDocuments, Mapped]:
    """Joins parts that are in the order of their ids."""
    tables = [_columns(documents) for documents, _ in parts]
    names = [name for name in ClusteredDocuments.__dataclass_fields__ if all(name in table for table in tables)]
    columns = {name: np.concatenate([table[name] for table in tables]) for name in names}
    starts = np.cumsum([0, *(len(documents) for documents, _ in parts)])
    documents_M = [mapped.documents_M + start for start, (_, mapped) in zip(starts, parts, strict=False)]
    vectors_MD = np.concatenate([mapped.vectors_MD for _, mapped in parts])
    return ClusteredDocuments(**columns), Mapped(np.concatenate(documents_M).astype(np.int32), vectors_MD)


def _columns(documents: ClusteredDocuments) -> dict[str, NDArray[Any]]:
    """The columns that are known."""
    columns = {name: getattr(documents, name) for name in ClusteredDocuments.__dataclass_fields__}
    return {name: column for name, column in columns.items() if column is not None}


_CLUSTER_AGAIN = "Cluster again."
