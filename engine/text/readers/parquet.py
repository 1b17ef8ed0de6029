"""Reads parquet tables as records, a few rows in memory at a time, however large or repetitive the table is."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from engine.errors import CorpusError
from engine.text import records
from engine.text.records import Record, Records, Source, names_of
from engine.text.streams import refuse_growth

BATCH_ROWS = 64


def read_parquet(source: Source) -> Records:
    """The rows of a table; a compressed table is unpacked to a temporary file first."""
    with _seekable(source) as file:
        try:
            yield from _rows(source, _open(source, file))
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            reason = (str(error).splitlines() or ["damaged"])[0]
            remedy = "Write or download it again."
            raise source.fault(f"The parquet file cannot be read ({reason}).", remedy) from None


@contextmanager
def _seekable(source: Source) -> Iterator[IO[bytes]]:
    """The file itself, or its unpacked copy: a table is read from its end."""
    if not source.file.suffixes[1]:
        with source.file.path.open("rb") as file:
            yield file
        return
    with tempfile.TemporaryFile() as copy:
        while data := source.stream.read(1 << 20):
            copy.write(data)
        copy.seek(0)
        yield copy


def _open(source: Source, file: IO[bytes]) -> Any:
    schema = pq.read_schema(file)
    fields = source.columns(schema.names)
    for field in fields:
        if field not in schema.names:
            problem = f"The table has no column “{field}”, only {names_of(schema.names)}."
            raise source.fault(problem, "Name the column to read.")
        if schema.names.count(field) > 1:
            problem = f"The table has {schema.names.count(field)} columns “{field}”."
            raise source.fault(problem, "Rename one of them.")
    # read as a dictionary, a value that many rows repeat is held once: repetition is a bomb in parquet
    kind = schema.field(fields[0]).type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    file.seek(0)
    return pq.ParquetFile(
        file, buffer_size=1 << 20, pre_buffer=False, read_dictionary=list(fields[:1]) if is_text else None
    )


def _rows(source: Source, table: Any) -> Records:
    num_rows, num_bytes = table.metadata.num_rows, source.file.size_bytes
    fields = source.columns(table.schema_arrow.names)
    row = size = 0
    for batch in table.iter_batches(batch_size=BATCH_ROWS, columns=list(fields), use_threads=False):
        for i in range(batch.num_rows):
            row += 1
            item = _row(source, fields, batch, i, row, num_bytes * row // num_rows)
            size += len(str(item.values[fields[0]])) if isinstance(item, Record) else 0
            refuse_growth(source.file, size, num_bytes)
            yield item


def _row(source: Source, fields: tuple[str, ...], batch: Any, i: int, row: int, offset: int) -> Record | CorpusError:
    try:
        values = {field: batch.column(field)[i].as_py() for field in fields}
    except UnicodeDecodeError as error:
        return source.not_utf8(row, error.start + 1)
    text = values[fields[0]]
    if isinstance(text, str) and len(text) > records.MAX_RECORD_BYTES:
        return source.too_long(row)
    return Record(row, values, offset)
