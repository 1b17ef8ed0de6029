"""The documents of a clustering: cluster, source, split and place on the map.

Ids and small numbers without text, 48 bytes each, so that all fit into memory. They are streamed out of several
domains, each text once, in the order of their ids; a text that is held out in one domain and in another's training
split counts as held out.
Shapes: N documents, M of them on the map, K clusters, D dimensions.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from engine.errors import CorpusError
from engine.events import Progress
from engine.files import reading_own
from engine.text.corpus import Document
from engine.text.parquet_rows import Row, SortedRows, Table, read_groups, read_ids, read_range, read_rows
from engine.text.plain_text import pieces
from engine.text.split import MEMORY_BYTES, count_documents
from engine.text.split_names import HELD_OUT_FIRST, SPLITS, Split

Ids = NDArray[np.bytes_]  # dtype S32: the SHA-256 of a text, ordered as their hexadecimal digits are
REPORT_EVERY = 1000  # documents
SHOWN = 5  # ids in a sentence


@dataclass(frozen=True, slots=True)
class SourceDocument:
    """A document with its split and the index of its domain's folder."""

    id: str
    text: str
    split: Split
    source: int
    group: str | None
    origin: str


def as_ids(hexadecimal: Sequence[str]) -> Ids:
    """Ids from their hexadecimal digits."""
    return np.frombuffer(bytes.fromhex("".join(hexadecimal)), dtype="S32")


def hex_of(ids_N: Ids) -> list[str]:
    """Ids as 64 hexadecimal digits each."""
    rows = np.ascontiguousarray(ids_N).view(np.uint8).reshape(-1, 32)
    return [row.tobytes().hex() for row in rows]


def places_of(wanted_M: Ids, sorted_N: Ids) -> NDArray[np.intp]:
    """The index of each wanted id among sorted ids; -1 if missing."""
    if not len(sorted_N):
        return np.full(len(wanted_M), -1, dtype=np.intp)
    places = np.searchsorted(sorted_N, wanted_M).clip(max=len(sorted_N) - 1)
    return np.where(sorted_N[places] == wanted_M, places, -1)


def document_ids(folders: Sequence[Path], splits: Sequence[str]) -> Ids:
    """The ids of all documents in these splits, sorted, each once."""
    parts = [as_ids(ids) for folder in folders for split in splits for ids in read_ids(folder / f"{split}.parquet")]
    ids_N: Ids = np.unique(np.concatenate([np.empty(0, dtype="S32"), *parts]))
    return ids_N


def first_in_group(folders: Sequence[Path], sorted_N: Ids) -> NDArray[np.intp]:
    """For each document the index of the first of the same group; its own index without a group."""
    wholes_N, first = np.arange(len(sorted_N)), dict[str, int]()
    for path in (folder / f"{split}.parquet" for folder in folders for split in HELD_OUT_FIRST):
        for rows in read_groups(path):
            places = places_of(as_ids([id for id, _ in rows]), sorted_N)
            for (_, name), index in zip(rows, places.tolist(), strict=True):
                if index >= 0:
                    wholes_N[index] = first.setdefault(name, index)
    return wholes_N


def training_ids(folders: Sequence[Path]) -> Ids:
    """The ids of the documents that no domain holds out, sorted."""
    ids_N: Ids = np.setdiff1d(
        document_ids(folders, ["train"]), document_ids(folders, ["dev", "test"]), assume_unique=True
    )
    return ids_N


def draw(ids_N: Ids, size: int, seed: int) -> Ids:
    """A sorted sample of sorted ids; all of them if they are fewer."""
    chosen = np.random.default_rng(seed).permutation(len(ids_N))[:size]
    sample: Ids = ids_N[np.sort(chosen)]
    return sample


def write_sample(
    folders: Sequence[Path], ids_N: Ids, path: Path, splits: Sequence[str] = ("train",)
) -> Iterator[Progress]:
    """Writes these documents as one table in the order of their ids. Raises CorpusError when some are missing."""
    wanted = {bytes.fromhex(id) for id in hex_of(ids_N)}
    unsorted = path.with_suffix(".unsorted")
    shutil.rmtree(unsorted, ignore_errors=True)  # left by an interrupted attempt
    rows, done = SortedRows(unsorted), 0
    for table in (folder / f"{split}.parquet" for folder in folders for split in splits):
        for row in read_rows(table):
            key = bytes.fromhex(row["id"])
            if key not in wanted:
                continue
            wanted.remove(key)
            rows.add(row)
            done += 1
            if rows.waiting_bytes >= MEMORY_BYTES:
                rows.flush()
            if done % REPORT_EVERY == 0:
                yield Progress(done, len(ids_N), "documents", "drawing the sample", phase="sample")
    require_all(sorted(key.hex() for key in wanted), len(ids_N))
    with Table(path) as sample:
        for row in rows.read():
            sample.add(row)
    yield Progress(len(ids_N), len(ids_N), "documents", "drawing the sample", phase="sample")


def require_all(missing: Sequence[str], total: int) -> None:
    """Raises CorpusError that names missing documents, if any."""
    if missing:
        raise CorpusError(
            f"{len(missing)} of {total} documents are missing: {shown(missing)}.",
            "The text has changed since it was clustered: restore it, or cluster again.",
        )


def shown(ids: Sequence[str]) -> str:
    """The first few ids, shortened, for a sentence."""
    return ", ".join(id[:12] for id in ids[:SHOWN]) + (", …" if len(ids) > SHOWN else "")


def read_shard(folders: Sequence[Path], shard: int, num_shards: int) -> Iterator[SourceDocument]:
    """The documents in one of `num_shards` equal id ranges, each once, held-out documents first."""
    first, end = _border(shard, num_shards), _border(shard + 1, num_shards)
    seen: set[bytes] = set()
    for split in HELD_OUT_FIRST:
        for source, folder in enumerate(folders):
            for row in read_range(folder / f"{split}.parquet", first, end):
                key = bytes.fromhex(row["id"])
                if key not in seen:
                    seen.add(key)
                    yield _document(row, split, source)


def find_document(folder: Path, split: Split, id: str) -> SourceDocument | None:
    """One document of a domain by its id."""
    for row in read_range(folder / f"{split}.parquet", id, id + "g"):
        return _document(row, split, 0)
    return None


def _document(row: dict[str, Any], split: Split, source: int) -> SourceDocument:
    return SourceDocument(row["id"], row["text"], split, source, row["group"], row["source"])


def _border(shard: int, num_shards: int) -> str:
    """The first id of a shard; for the last border a value above all ids."""
    return f"{(shard << 32) // num_shards:08x}" if shard < num_shards else "g"


def cut_documents(domain: Path, length: int, folder: Path) -> Iterator[Progress]:
    """Writes a domain's documents into a folder, those of more than `length` characters in pieces.

    Every piece is in the split of its document and in its group, which is the document unless that has one.
    """
    total, done = sum(count_documents(domain, split) for split in SPLITS), 0
    for split in SPLITS:
        rows, seen = SortedRows(folder / "unsorted"), set[bytes]()
        for row in read_rows(domain / f"{split}.parquet"):
            for piece in _pieces(row, length):
                if (key := bytes.fromhex(piece["id"])) not in seen:
                    seen.add(key)
                    rows.add(piece)
            if rows.waiting_bytes >= MEMORY_BYTES:
                rows.flush()
            done += 1
            if done % REPORT_EVERY == 0:
                yield Progress(done, total, "documents", "cutting long documents", phase="pieces")
        with Table(folder / f"{split}.parquet") as table:
            for row in rows.read():
                table.add(row)
    yield Progress(total, total, "documents", "cutting long documents", phase="pieces")


def ids_when_cut(domains: Sequence[Path], length: int) -> Ids:
    """The ids that the documents of domains have after they were cut, sorted, each once."""
    ids = {
        piece["id"]
        for domain in domains
        for split in SPLITS
        for row in read_rows(domain / f"{split}.parquet")
        for piece in _pieces(row, length)
    }
    ids_N: Ids = np.unique(as_ids(sorted(ids)))
    return ids_N


def _pieces(row: Row, length: int) -> Iterator[Row]:
    """A conversation stays as it is."""
    if len(row["text"]) <= length or "messages" in row:
        yield {name: row[name] for name in ("id", "text", "source", "group")}
        return
    for text in pieces(row["text"], length):
        if text:
            yield {"id": Document(text).id, "text": text, "source": row["source"], "group": row["group"] or row["id"]}


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
        index = int(np.searchsorted(self.ids_N, as_ids([digits.ljust(64, "0")])[0]))
        if index == len(self) or not self.id(index).startswith(digits):
            return None
        is_unique = index + 1 == len(self) or not self.id(index + 1).startswith(digits)
        return index if is_unique else None

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

    def save(self, folder: Path) -> None:
        """Writes both into a folder."""
        save_file({"documents_M": self.documents_M, "vectors_MD": self.vectors_MD}, folder / _MAPPED)


def load_documents(folder: Path) -> ClusteredDocuments:
    """The documents as they were saved; raises DamagedFileError."""
    with reading_own(f"The documents in {folder}", _CLUSTER_AGAIN):
        tensors = load_file(folder / _FILE)
        ids_N = np.ascontiguousarray(tensors.pop("ids_N")).view("S32").reshape(-1)
        return ClusteredDocuments(ids_N=ids_N, **tensors)


def load_mapped(folder: Path) -> Mapped:
    """The stored map of a clustering; raises DamagedFileError."""
    with reading_own(f"The map's vectors in {folder}", _CLUSTER_AGAIN):
        return Mapped(**load_file(folder / _MAPPED))


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
