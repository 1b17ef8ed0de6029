"""A reader for each file format: yields records and recoverable faults; raises fatal faults."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable

from engine.errors import CorpusError
from engine.text import records
from engine.text.file_magic import refuse_foreign
from engine.text.parquet import read_parquet
from engine.text.plain_text import read_plain
from engine.text.records import Record, Records, Source, names_of
from engine.text.streams import KNOWN_KINDS, TextFile, Unpacked


def read_records(
    file: TextFile,
    fields: tuple[str, ...],
    seen: Callable[[int], None],
    either: tuple[tuple[str, ...], ...] = (),
    optional: tuple[str, ...] = (),
) -> Records:
    """The records of a file; `fields[0]` is the text field. Calls `seen` with the bytes read from disk.

    A table must also have all columns of one of `either`, if given.
    """
    reader = READERS.get(file.kind or "")
    if reader is None:
        raise unknown_format(file)
    raw = Unpacked(file)
    with io.BufferedReader(raw, 1 << 20) as stream:
        if file.kind != "parquet":
            refuse_foreign(stream, file.name)
        for record in _of_one_moment(reader(Source(file, stream, fields, either, optional)), raw):
            offset = record.offset if isinstance(record, Record) else None
            seen(raw.bytes_read if offset is None else offset)
            yield record


def _of_one_moment(items: Records, raw: Unpacked) -> Records:
    """The same records; raises CorpusChanged instead of a fault, or at the end, if the file was written meanwhile."""
    try:
        for item in items:
            if isinstance(item, CorpusError):
                raw.require_unchanged()
            yield item
    except CorpusError:
        raw.require_unchanged()
        raise
    raw.require_unchanged()


def unknown_format(file: TextFile) -> CorpusError:
    """The error of a file that no reader knows."""
    if file.is_archive:
        remedy = "Unpack it and import the folder."
        return CorpusError("The file is an archive, not text.", remedy, path=file.name)
    suffix = file.suffixes[0] or "without a suffix"
    return CorpusError(f"The file has an unknown format: {suffix}.", KNOWN_KINDS, path=file.name)


def _json(source: Source) -> Records:
    for item in source.lines():
        if isinstance(item, CorpusError):
            yield item
        elif item[1].strip():
            yield _object(source, *item)


def _object(source: Source, line: int, text: str) -> Record | CorpusError:
    try:
        value = json.loads(text)
    except RecursionError:
        return source.fault("The line is JSON that is nested too deeply.", "Remove the nesting.", line)
    except ValueError as error:
        if line == 1 and (text.lstrip().startswith("[") or text.strip() == "{"):
            raise _not_lines(source) from None
        return source.fault(f"The line is not JSON ({error}).", "Fix or remove it.", line)
    if isinstance(value, dict):
        return Record(line, value)
    if isinstance(value, list) and line == 1:
        raise _not_lines(source)
    kind = type(value).__name__
    return source.fault(f"The line must be a JSON object, got a {kind}.", 'Write {"text": "…"}.', line)


def _not_lines(source: Source) -> CorpusError:
    return source.fault(
        "The file is a JSON array or an object over many lines; one JSON object per line is needed.",
        "Write one object per line, for example: jq -c '.[]' FILE > NEW.jsonl.",
        1,
    )


def _csv(source: Source, delimiter: str = ",") -> Records:
    csv.field_size_limit(records.MAX_RECORD_BYTES)  # of the process; the default of 128 KiB is short for documents
    feed = _Feed(source)
    rows = csv.reader(feed, delimiter=delimiter, strict=True)
    header: list[str] = []
    while True:
        line = feed.begin()
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield source.fault(f"The row is not valid CSV ({error}).", "Is a quote missing or not doubled?", line)
            continue
        if not header:
            header = _header(source, row, line)
        elif row:
            yield _row(source, header, row, line)


def _header(source: Source, row: list[str], line: int) -> list[str]:
    if not row:
        return row
    if len(set(row)) < len(row):
        raise source.fault("The header names a column twice.", "Rename the columns.", line)
    for field in source.fields:
        if field not in row:
            problem = f"The header has no column “{field}”, only {names_of(row)}."
            raise source.fault(
                problem, "Name the column to read, or add a header; columns are separated by commas.", line
            )
    return row


def _row(source: Source, header: list[str], row: list[str], line: int) -> Record | CorpusError:
    if len(row) == len(header):
        return Record(line, dict(zip(header, row, strict=True)))
    return source.fault(
        f"The row has {len(row)} values for {len(header)} columns.",
        "Fix or remove it; text with a comma or a line end needs quotes.",
        line,
    )


class _Feed:
    """The lines for the csv reader, counted, so that a missing quote cannot swallow the rest of the file."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._lines = source.lines()
        self._number = 0
        self._first = 1
        self._size = 0

    def begin(self) -> int:
        """Begins a record; returns the number of its first line."""
        self._first, self._size = self._number + 1, 0
        return self._first

    def __iter__(self) -> _Feed:
        return self

    def __next__(self) -> str:
        item = next(self._lines)
        if isinstance(item, CorpusError):
            raise item
        self._number = item[0]
        self._size += len(item[1])
        if self._size > records.MAX_RECORD_BYTES:
            raise self._source.too_long(self._first)
        return item[1]


def _tsv(source: Source) -> Records:
    return _csv(source, "\t")


READERS: dict[str, Callable[[Source], Records]] = {
    "text": read_plain,
    "json": _json,
    "csv": _csv,
    "tsv": _tsv,
    "parquet": read_parquet,
}
