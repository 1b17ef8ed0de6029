"""Documents kept as train, dev and test tables, one folder per domain, in the order of their ids.

A document's part follows from the hash of its group (of its own id, where it has none), so it stays there
when the corpus grows. Names and order of the files it came from change nothing but its `source`.
"""

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from engine.errors import CorpusError
from engine.events import Progress
from engine.text.corpus import Document

SPLITS = ("train", "dev", "test")
TEST_SHARE = 0.05
DEV_SHARE = 0.05
MAX_DOMAINS = 200  # more would be a field that names records rather than domains
RUN_BYTES = 64 << 20  # text sorted in memory at a time
BATCH_BYTES = 4 << 20  # text in one row group
REPORT_BYTES = 1 << 20  # text between two events
SCHEMA = pa.schema([(name, pa.string()) for name in ("id", "text", "source", "group")])

Row = dict[str, Any]


def keep_documents(
    documents: Iterable[Document],
    folder: Path,
    *,
    total_bytes: int | None = None,
    done_bytes: Callable[[], int] | None = None,
) -> Iterator[Progress]:
    """Writes folder/N/{train,dev,test}.parquet for each domain N and folder/summary.json.

    Yields progress in bytes: what `done_bytes` says is read of `total_bytes`, or else the text kept so far.
    Raises CorpusError when a domain has fewer than three groups.
    """
    domains: dict[str | None, _Domain] = {}
    num_bytes = reported = 0
    for document in documents:
        if document.domain not in domains:
            domains[document.domain] = _new_domain(document.domain, folder / str(len(domains)), len(domains))
        num_bytes += domains[document.domain].add(document)
        if sum(domain.waiting_bytes for domain in domains.values()) >= RUN_BYTES:
            max(domains.values(), key=lambda domain: domain.waiting_bytes).flush()
        if num_bytes - reported >= REPORT_BYTES:
            reported = num_bytes
            yield Progress(done_bytes() if done_bytes else num_bytes, total_bytes, "bytes", "reading")
    for domain in domains.values():
        domain.flush()
    done = 0
    for domain in domains.values():
        for size in domain.write_splits():
            done += size
            yield Progress(done, num_bytes, "bytes", "sorting into train, dev and test")
    summary = {"domains": [domain.summary for domain in domains.values()]}
    (folder / "summary.json").write_text(json.dumps(summary, indent=1), encoding="utf-8")


def read_split(domain_folder: Path, split: str) -> Iterator[Row]:
    """The rows of train, dev or test: id, text, source, group."""
    if split not in SPLITS:
        raise CorpusError(
            f"A split must be one of {', '.join(SPLITS)}, but is “{split}” instead.", "Choose one of them."
        )
    yield from _rows(domain_folder / f"{split}.parquet")


def count_documents(domain_folder: Path, split: str) -> int:
    """Documents in a split, without reading them."""
    return int(pq.read_metadata(domain_folder / f"{split}.parquet").num_rows)


def place_of(group: str) -> float:
    """Where a group lies between 0 and 1: test comes first, then dev, then train."""
    digest = hashlib.sha256(f"split\0{group}".encode()).digest()
    return int.from_bytes(digest[:7]) / 2**56  # 56 bits: a float holds them exactly, so 1 is never reached


def _new_domain(name: str | None, folder: Path, number: int) -> _Domain:
    if number >= MAX_DOMAINS:
        raise CorpusError(
            f"The domain field must name at most {MAX_DOMAINS} domains, but names more instead.",
            "Choose a field that many records share.",
        )
    return _Domain(name, folder)


class _Domain:
    """One domain on its way to disk: sorted runs first, then the three tables merged from them."""

    def __init__(self, name: str | None, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.waiting_bytes = 0
        self.summary: dict[str, Any] = {}
        self._waiting: list[Row] = []
        self._num_runs = 0
        self._places: set[float] = set()
        folder.mkdir(parents=True)

    def add(self, document: Document) -> int:
        """Takes a document; gives the bytes of its text."""
        group = document.group
        self._waiting.append(
            {"id": document.id, "text": document.text, "source": document.source, "group": group}
        )
        self._places.add(place_of(document.id if group is None else group))
        size = len(document.text.encode())
        self.waiting_bytes += size
        return size

    def flush(self) -> None:
        """Writes what waits as one sorted run."""
        if self._waiting:
            self._waiting.sort(key=itemgetter("id"))
            for _ in _write(self._run(self._num_runs), self._waiting):
                pass
            self._num_runs += 1
        self._waiting, self.waiting_bytes = [], 0

    def write_splits(self) -> Iterator[int]:
        """Merges the runs into the three tables; yields the bytes of text written now and then."""
        limits = self._limits()
        counts = {split: {"documents": 0, "words": 0, "bytes": 0} for split in SPLITS}
        ids = hashlib.sha256()
        writers = {split: _Table(self.folder / f"{split}.parquet") for split in SPLITS}
        try:
            pending = 0
            for row in self._merged():
                ids.update(row["id"].encode())
                split = _split_of(row, limits)
                size = writers[split].add(row)
                _count(counts[split], row["text"], size)
                pending += size
                if pending >= REPORT_BYTES:
                    yield pending
                    pending = 0
        finally:
            for writer in writers.values():
                writer.close()
        self._forget_runs()
        yield pending
        self.summary = self._summarize(counts, ids.hexdigest())

    def _summarize(self, counts: dict[str, dict[str, int]], data_sha256: str) -> dict[str, Any]:
        total = {
            unit: sum(count[unit] for count in counts.values()) for unit in ("documents", "words", "bytes")
        }
        return {
            "name": self.name,
            "folder": self.folder.name,
            **{f"num_{unit}": number for unit, number in total.items()},
            "splits": counts,
            "data_sha256": data_sha256,
        }

    def _limits(self) -> tuple[float, float]:
        """Below the first a group is test, below the second dev; every part gets at least one group.

        In a domain too small for that, the groups next to the border move over it.
        """
        places = sorted(self._places)
        if len(places) < 3:
            problem = (
                f"A domain must have 3 groups of text or more, but {self._title()} has {len(places)} instead."
            )
            raise CorpusError(problem, "Add text, or choose a group field with more values.")
        num_test = sum(place < TEST_SHARE for place in places)
        num_held_out = sum(place < TEST_SHARE + DEV_SHARE for place in places)
        num_test = min(max(num_test, 1), len(places) - 2)
        num_held_out = min(max(num_held_out, num_test + 1), len(places) - 1)
        return places[num_test], places[num_held_out]

    def _title(self) -> str:
        return "this one" if self.name is None else f"“{self.name}”"

    def _run(self, number: int) -> Path:
        return self.folder / f"run{number}.parquet"

    def _merged(self) -> Iterator[Row]:
        runs = [_rows(self._run(number)) for number in range(self._num_runs)]
        return heapq.merge(*runs, key=itemgetter("id"))

    def _forget_runs(self) -> None:
        for number in range(self._num_runs):
            self._run(number).unlink()


class _Table:
    """A parquet file that grows by row groups of bounded size."""

    def __init__(self, path: Path) -> None:
        self._writer = pq.ParquetWriter(path, SCHEMA, compression="zstd")
        self._rows: list[Row] = []
        self._size = 0

    def add(self, row: Row) -> int:
        """Takes a row; gives the bytes of its text."""
        size = len(row["text"].encode())
        self._rows.append(row)
        self._size += size
        if self._size >= BATCH_BYTES:
            self._flush()
        return size

    def close(self) -> None:
        """Writes the rest and the footer."""
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_pylist(self._rows, SCHEMA))
        self._rows, self._size = [], 0


def _write(path: Path, rows: Iterable[Row]) -> Iterator[int]:
    table = _Table(path)
    try:
        for row in rows:
            yield table.add(row)
    finally:
        table.close()


def _rows(path: Path) -> Iterator[Row]:
    with pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as table:
        for batch in table.iter_batches(batch_size=64, use_threads=False):
            yield from batch.to_pylist()


def _split_of(row: Row, limits: tuple[float, float]) -> str:
    place = place_of(row["id"] if row["group"] is None else row["group"])
    if place < limits[0]:
        return "test"
    return "dev" if place < limits[1] else "train"


def _count(counts: dict[str, int], text: str, size: int) -> None:
    counts["documents"] += 1
    counts["words"] += len(text.split())
    counts["bytes"] += size
