"""A reader for each file format: yields records and recoverable faults; raises fatal faults.

However large a file is, no more than one JSON value or a few rows of it are in memory, and a missing quote in CSV takes
no more than one record with it.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from engine.errors import CorpusError
from engine.foreign_files import HEAD_BYTES, RepeatedKeyError, without_repeats
from engine.path_kinds import describe_head, describe_path
from engine.text import streams
from engine.text.plain_text import read_plain
from engine.text.streams import KNOWN_KINDS, Record, Records, Source, TextFile, Unpacked, names_of, refuse_growth

BATCH_ROWS = 64  # of a parquet table
_CHUNK = 1 << 16
_SPACE = re.compile(r"[ \t\r\n]*")
_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}


def read_records(
    file: TextFile,
    fields: tuple[str, ...],
    seen: Callable[[int], None] = lambda _: None,
    either: tuple[tuple[str, ...], ...] = (),
    note: Callable[[str], None] = lambda _: None,
) -> Records:
    """The records of a file; `fields[0]` is the text field. Calls `seen` with the bytes read from disk.

    A table must also have all columns of one of `either`, if given. Sentences for the person go to `note`.
    """
    described = describe_path(file.path, "The file")
    if described.kind in ("pointer", "device", "unreadable"):
        raise CorpusError(described.sentence, described.remedy, path=file.name)
    reader = _READERS.get(file.kind or "")
    if reader is None:
        raise unknown_format(file)
    raw = Unpacked(file)
    with io.BufferedReader(raw, 1 << 20) as stream:
        if file.kind != "parquet":
            _refuse_foreign(stream, file.name)
        for record in _of_one_moment(reader(Source(file, stream, fields, note, either)), raw):
            offset = record.offset if isinstance(record, Record) else None
            seen(raw.bytes_read if offset is None else offset)
            yield record


def _of_one_moment(items: Records, raw: Unpacked) -> Records:
    """The same records. Raises CorpusChangedError, in place of a fault or at the end, if the file has changed."""
    try:
        for item in items:
            if isinstance(item, CorpusError):
                raw.require_unchanged()
            yield item
    except CorpusError:
        raw.require_unchanged()
        raise
    raw.require_unchanged()


def _refuse_foreign(stream: io.BufferedReader[Any], name: str) -> None:
    """Raises CorpusError when the stream cannot be UTF-8 text; drops a leading byte order mark."""
    head = stream.peek(HEAD_BYTES)[:HEAD_BYTES]
    if head.startswith(codecs.BOM_UTF8):
        stream.read(len(codecs.BOM_UTF8))
        return
    described = describe_head(head, "The file")
    if described.kind not in ("text", "empty"):
        raise CorpusError(described.sentence, described.remedy, path=name, line=1)


def unknown_format(file: TextFile) -> CorpusError:
    """The error of a file that no reader knows."""
    if file.is_archive:
        remedy = "Unpack it and import the folder."
        return CorpusError("The file is an archive, not text.", remedy, path=file.name)
    suffix = file.suffixes[0] or "without a suffix"
    return CorpusError(f"The file has an unknown format: {suffix}.", KNOWN_KINDS, path=file.name)


def _read_json(source: Source) -> Records:
    """One object per line; or an array, or objects over several lines, one after the other."""
    start = source.stream.peek(streams.PEEK_BYTES)[: streams.PEEK_BYTES].lstrip()
    if start[:1] == b"[" or re.match(rb"\{\s*\n", start):
        yield from _read_json_values(source)
        return
    for item in source.lines():
        if isinstance(item, CorpusError):
            yield item
        elif item[1].strip():
            line, text = item
            try:
                yield _record_of(source, json.loads(text, object_pairs_hook=without_repeats), line)
            except RecursionError:
                yield source.fault("The line is JSON that is nested too deeply.", "Remove the nesting.", line)
            except ValueError as error:
                yield source.fault(f"The line is not JSON ({error}).", "Fix or remove it.", line)


def _record_of(source: Source, value: object, line: int, position: str = "") -> Record | CorpusError:
    if isinstance(value, dict):
        return Record(line, value, position=position)
    problem = f"The line must be a JSON object, got a {type(value).__name__}.{position}"
    return source.fault(problem, 'Write {"text": "…"}.', line)


def _read_json_values(source: Source) -> Records:
    """The objects of an array, or objects over several lines.

    A fault in the JSON ends the file: nothing shows where the next record begins.
    """
    text = _JsonText(source)
    is_array = text.skip("[")
    number, line = 0, 0
    while not (text.skip("]") if is_array else text.is_at_end()):
        if number and is_array and not text.skip(","):
            raise source.fault("A comma is missing between two records of the array.", "Fix the file.", text.line)
        text.is_at_end()
        number, before, line = number + 1, line, text.line
        position = f" It is record {number:,} of the array." if is_array and line == before else ""
        yield _record_of(source, text.value(), line, position)
    if not text.is_at_end():
        raise source.fault("Something follows the end of the array.", "Write one record per line.", text.line)


class _JsonText:
    """The text of a file from some position on; more is read when it is needed."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._json = json.JSONDecoder(object_pairs_hook=without_repeats)
        self._text, self._position, self._is_complete = "", 0, False
        self.line = 1

    def skip(self, character: str) -> bool:
        """Whether this character comes next; then it is read."""
        is_next = not self.is_at_end() and self._text[self._position] == character
        self._position += is_next
        return is_next

    def is_at_end(self) -> bool:
        """Whether nothing but space is left; that space is read."""
        while True:
            self._advance(_SPACE.match(self._text, self._position).end())  # type: ignore[union-attr]
            if self._position < len(self._text):
                return False
            if not self._read(_CHUNK):
                return True

    def value(self) -> Any:
        """The next value; raises CorpusError when it is not JSON, or larger than a record may be."""
        size = _CHUNK
        while True:
            try:
                value, end = self._json.raw_decode(self._text, self._position)
                if isinstance(value, dict | list) or end < len(self._text) or not self._read(size):
                    self._advance(end)
                    return value
            except RecursionError:
                raise self._source.fault("The record is nested too deeply.", "Remove the nesting.", self.line) from None
            except RepeatedKeyError as error:
                raise self._source.fault(f"The record is not JSON ({error}).", "Fix it.", self.line) from None
            except json.JSONDecodeError as error:
                if len(self._text) - self._position > streams.MAX_RECORD_BYTES:
                    raise self._source.too_long(self.line) from None
                if not self._read(size):
                    line = self.line + self._text.count("\n", self._position, error.pos)
                    problem = f"The record is not JSON ({error.msg})."
                    raise self._source.fault(problem, "Fix it; the rest of the file was not read.", line) from None
            size = max(size, len(self._text) - self._position)

    def _advance(self, position: int) -> None:
        self.line += self._text.count("\n", self._position, position)
        self._position = position

    def _read(self, size: int) -> bool:
        """Reads so many bytes more; False at the end of the file."""
        if self._is_complete:
            return False
        data = self._source.stream.read(size)
        self._is_complete = not data
        try:
            more = self._decoder.decode(data, final=self._is_complete)
        except UnicodeDecodeError as error:
            line = self.line + self._text.count("\n", self._position) + data.count(b"\n", 0, error.start)
            raise self._source.not_utf8(line, error.start + 1) from None
        self._text, self._position = self._text[self._position :] + more, 0
        return True


def _read_csv(source: Source, delimiter: str = ",") -> Records:
    """The rows of a table; another separator than the expected one is recognised, and noted."""
    csv.field_size_limit(streams.MAX_RECORD_BYTES)  # of the process; the default of 128 KiB is short for documents
    delimiter = _delimiter(source, delimiter)
    feed = _CsvLines(source)
    rows = csv.reader(feed, delimiter=delimiter, strict=True)
    header: list[str] = []
    while True:
        line = feed.begin()
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            remedy = "Is a quote missing or not doubled?"
            if '\\"' in feed.last:
                remedy = 'A quote inside a value is written "" in CSV, not \\": write the file with doubled quotes.'
            elif "\r" in feed.last.rstrip("\r\n"):
                remedy = "A carriage return within a value needs quotes, and a line ends with a line feed."
            yield source.fault(f"The row is not valid CSV ({error}).", remedy, line)
            continue
        if not row or (row[0][:4].lower() == "sep=" and line == 1):  # the latter is a line that Excel reads
            continue
        if not header:
            _check_header(source, row, line, delimiter)
            header = row
        elif len(row) == len(header):
            yield Record(line, dict(zip(header, row, strict=True)))
        else:
            problem = f"The row has {len(row)} values for {len(header)} columns."
            yield source.fault(problem, "Fix or remove it; text with a comma or a line end needs quotes.", line)


def _delimiter(source: Source, expected: str) -> str:
    """What separates the columns: what a line `sep=` says, else the first of `_DELIMITERS` that shows the columns."""
    head = source.stream.peek(streams.PEEK_BYTES)[: streams.PEEK_BYTES].decode("utf-8", "replace")
    first = head.partition("\n")[0].rstrip("\r")
    if first[:4].lower() == "sep=":
        chosen = first[4:5] or "\t"  # a tab at the end of a line may have been cut
    else:
        candidates = dict.fromkeys((expected, *_DELIMITERS))
        chosen = next((mark for mark in candidates if _shows_columns(source, first, mark)), expected)
    if chosen != expected:
        source.note(f"{source.file.name}: columns are separated by {_DELIMITERS.get(chosen, repr(chosen))}.")
    return chosen


def _shows_columns(source: Source, header: str, delimiter: str) -> bool:
    try:
        names = next(csv.reader([header], delimiter=delimiter), [])
    except csv.Error:  # such as a carriage return within it; the reader of the rows says so
        return False
    has_shape = any(set(shape) <= set(names) for shape in source.either)
    return set(source.fields) <= set(names) and (has_shape or not source.either)


def _check_header(source: Source, row: list[str], line: int, delimiter: str) -> None:
    if len(set(row)) < len(row):
        raise source.fault("The header names a column twice.", "Rename the columns.", line)
    for field in source.fields:
        if field not in row:
            separators = _DELIMITERS.get(delimiter, repr(delimiter))
            raise source.fault(
                f"The header has no column “{field}”, only {names_of(row)}.",
                f"Name the column to read, or add a header; columns are separated by {separators}.",
                line,
            )


class _CsvLines:
    """The lines for the csv reader, counted, so that a missing quote cannot swallow the rest of the file."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._number, self._first, self._size = 0, 1, 0  # lines read, where the record begins, characters of it
        self.last = ""  # the line that was read last

    def begin(self) -> int:
        """Begins a record; returns the number of its first line."""
        self._first, self._size = self._number + 1, 0
        return self._first

    def __iter__(self) -> Iterator[str]:
        for item in self._source.lines():
            if isinstance(item, CorpusError):
                raise item
            self._number, self.last = item
            self._size += len(self.last)
            if self._size > streams.MAX_RECORD_BYTES:
                raise self._source.too_long(self._first)
            yield self.last


def _read_parquet(source: Source) -> Records:
    """The rows of a table; a compressed table is unpacked to a temporary file first."""
    with _seekable(source) as file:
        try:
            yield from _parquet_rows(source, _open_parquet(source, file))
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
        shutil.copyfileobj(source.stream, copy, 1 << 20)
        copy.seek(0)
        yield copy


def _open_parquet(source: Source, file: IO[bytes]) -> Any:
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


def _parquet_rows(source: Source, table: Any) -> Records:
    num_rows, num_bytes = table.metadata.num_rows, source.file.size_bytes
    fields = source.columns(table.schema_arrow.names)
    row = size = 0
    for batch in table.iter_batches(batch_size=BATCH_ROWS, columns=list(fields), use_threads=False):
        for i in range(batch.num_rows):
            row += 1
            try:
                values = {field: batch.column(field)[i].as_py() for field in fields}
            except UnicodeDecodeError as error:
                yield source.not_utf8(row, error.start + 1)
                continue
            text = values[fields[0]]
            if isinstance(text, str) and len(text) > streams.MAX_RECORD_BYTES:
                yield source.too_long(row)
                continue
            size += len(str(text))
            refuse_growth(source.file, size, num_bytes)
            yield Record(row, values, num_bytes * row // num_rows)


_READERS: dict[str, Callable[[Source], Records]] = {
    "text": read_plain,
    "json": _read_json,
    "csv": _read_csv,
    "tsv": partial(_read_csv, delimiter="\t"),
    "parquet": _read_parquet,
}
