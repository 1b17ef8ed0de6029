"""Rows of documents in parquet files: written in bounded groups, read in small batches, sorted by id on disk."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from engine.errors import CorpusError

BATCH_BYTES = 4 << 20  # of memory for the rows of one row group
MAX_RUNS = 256  # files merged at once; a process may open some thousand
RUN_BYTES = 1 << 16  # of a page of such a file, and read of each of its columns at once: all of them are in memory
RUN_ROWS = 16
SCHEMA = pa.schema([(name, pa.string()) for name in ("id", "text", "source", "group")])
CHAT_SCHEMA = SCHEMA.append(pa.field("messages", pa.string()))  # of a domain of conversations, as JSON

Row = dict[str, Any]


@contextmanager
def _open_table(path: Path, **options: Any) -> Iterator[pq.ParquetFile]:
    """A table to read, with options of pyarrow's reader; raises CorpusError where it is damaged."""
    try:
        with pq.ParquetFile(path, **options) as table:
            yield table
    except (pa.ArrowException, OSError) as error:
        reason = (str(error).splitlines() or ["damaged"])[0]
        problem = f"The table of documents cannot be read ({reason})."
        raise CorpusError(problem, "Import the corpus again.", path=path) from None


def read_rows(path: Path, *, buffer_bytes: int = 1 << 20, batch_rows: int = 64) -> Iterator[Row]:
    """The rows of a table, in order; the buffer is for each column."""
    with _open_table(path, buffer_size=buffer_bytes, pre_buffer=False) as table:
        for batch in table.iter_batches(batch_size=batch_rows, use_threads=False):
            yield from batch.to_pylist()


def read_range(path: Path, first: str, end: str) -> Iterator[Row]:
    """The rows with first <= id < end, in a table sorted by id."""
    with _open_table(path, buffer_size=1 << 20, pre_buffer=False) as table:
        groups = [group for group in range(table.num_row_groups) if _overlaps(table, group, first, end)]
        # pyarrow 18 cannot read no group.
        for batch in table.iter_batches(batch_size=64, row_groups=groups, use_threads=False) if groups else ():
            yield from (row for row in batch.to_pylist() if first <= row["id"] < end)


def _overlaps(table: pq.ParquetFile, group: int, first: str, end: str) -> bool:
    statistics = table.metadata.row_group(group).column(0).statistics
    return statistics is None or not statistics.has_min_max or (statistics.min < end and statistics.max >= first)


def read_matching(path: Path, words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Id and text of each row whose text holds all these words, whatever their case, in order."""
    with _open_table(path) as table:
        for batch in table.iter_batches(batch_size=1024, columns=["id", "text"], use_threads=False):
            for word in words:
                batch = batch.filter(pc.match_substring(batch.column("text"), word, ignore_case=True))
            yield from zip(batch.column("id").to_pylist(), batch.column("text").to_pylist(), strict=True)


def read_ids(path: Path) -> Iterator[list[str]]:
    """The ids of a table, a few thousand at a time, in order; no text is read."""
    with _open_table(path) as table:
        for batch in table.iter_batches(batch_size=8192, columns=["id"], use_threads=False):
            yield batch.column("id").to_pylist()


def read_groups(path: Path) -> Iterator[list[tuple[str, str]]]:
    """Pairs of id and group (the id itself for a row without group), a few thousand at a time, in order.

    The pieces of a document share its group, or its id as their group.
    """
    with _open_table(path) as table:
        for batch in table.iter_batches(batch_size=8192, columns=["id", "group"], use_threads=False):
            rows = batch.to_pylist()
            yield [(row["id"], row["id"] if row["group"] is None else row["group"]) for row in rows]


def num_rows(path: Path) -> int:
    """The number of rows of a table, from its footer."""
    with _open_table(path) as table:
        return int(table.metadata.num_rows)


class Table:
    """A parquet file written in row groups of bounded size, with further options of pyarrow's writer."""

    def __init__(self, path: Path, schema: pa.Schema = SCHEMA, **options: Any) -> None:
        self._schema = schema
        self._writer = pq.ParquetWriter(path, schema, compression="zstd", **options)
        self._rows: list[Row] = []
        self._size = 0

    def __enter__(self) -> Table:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._flush()
        finally:
            self._writer.close()

    def add(self, row: Row) -> int:
        """Adds a row; returns the bytes of its text."""
        self._rows.append(row)
        self._size += _memory_of(row)
        if self._size >= BATCH_BYTES:
            self._flush()
        return len(row["text"].encode())

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_pylist(self._rows, self._schema))
        self._rows, self._size = [], 0


def _memory_of(row: Row) -> int:
    """The bytes of memory that a row takes: of a short text many times its own."""
    return sys.getsizeof(row) + sum(map(sys.getsizeof, row.values()))


class SortedRows:
    """An external merge sort: takes rows in any order, gives them back in the order of their ids."""

    def __init__(self, folder: Path, schema: pa.Schema = SCHEMA) -> None:
        self.waiting_bytes = 0  # of memory that rows take until the next flush
        self._folder, self._schema = folder, schema
        self._waiting: list[Row] = []
        self._runs: list[Path] = []
        self._num_written = 0
        folder.mkdir(parents=True)

    def add(self, row: Row) -> int:
        """Adds a row; returns the bytes of its text."""
        self._waiting.append(row)
        self.waiting_bytes += _memory_of(row)
        return len(row["text"].encode())

    def flush(self) -> int:
        """Writes the rows in memory to disk; returns the bytes of memory that they took."""
        size_bytes = self.waiting_bytes
        if self._waiting:
            self._write(sorted(self._waiting, key=itemgetter("id")))
        self._waiting, self.waiting_bytes = [], 0
        if len(self._runs) >= MAX_RUNS:
            merged = list(self._runs)
            self._write(self._merge())
            self._delete(merged)
        return size_bytes

    def read(self) -> Iterator[Row]:
        """Yields all rows in the order of their ids, then deletes them."""
        self.flush()
        yield from self._merge()
        self._delete(list(self._runs))
        self._folder.rmdir()

    def _merge(self) -> Iterator[Row]:
        read = partial(read_rows, buffer_bytes=RUN_BYTES, batch_rows=RUN_ROWS)
        return heapq.merge(*map(read, self._runs), key=itemgetter("id"))

    def _write(self, rows: Iterable[Row]) -> None:
        path = self._folder / f"{self._num_written}.parquet"
        # pyarrow looks at the size of a page only after so many rows.
        options = {"data_page_size": RUN_BYTES, "write_batch_size": RUN_ROWS, "use_dictionary": False}
        with Table(path, self._schema, **options) as table:
            for row in rows:
                table.add(row)
        self._num_written += 1
        self._runs.append(path)

    def _delete(self, runs: list[Path]) -> None:
        for run in runs:
            run.unlink()
            self._runs.remove(run)
