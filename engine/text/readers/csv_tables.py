"""Reads tables of CSV, whatever separates their columns, and no further than one record after a missing quote."""

from __future__ import annotations

import csv

from engine.errors import CorpusError
from engine.text import records
from engine.text.records import Record, Records, Source, names_of


def read_csv(source: Source, delimiter: str = ",") -> Records:
    """The rows of a table; another separator than the expected one is recognised, and noted."""
    csv.field_size_limit(records.MAX_RECORD_BYTES)  # of the process; the default of 128 KiB is short for documents
    delimiter = _delimiter(source, delimiter)
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
            yield source.fault(f"The row is not valid CSV ({error}).", _quote_remedy(feed.last), line)
            continue
        if row and row[0][:4].lower() == "sep=" and line == 1:
            continue  # a line that Excel reads
        if not header:
            header = _header(source, row, line, delimiter)
        elif row:
            yield _row(source, header, row, line)


_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}


def _delimiter(source: Source, expected: str) -> str:
    """What separates the columns: what a line `sep=` says, else the first of `_DELIMITERS` that shows the columns."""
    head = source.stream.peek(records.PEEK_BYTES)[: records.PEEK_BYTES].decode("utf-8", "replace")
    first = head.partition("\n")[0].rstrip("\r")
    if first[:4].lower() == "sep=":
        chosen = first[4:5] or "\t"  # a tab at the end of a line may have been cut
    else:
        shown = (one for one in dict.fromkeys((expected, *_DELIMITERS)) if _shows_columns(source, first, one))
        chosen = next(shown, expected)
    if chosen != expected:
        source.note(f"{source.file.name}: columns are separated by {_DELIMITERS.get(chosen, repr(chosen))}.")
    return chosen


def _shows_columns(source: Source, header: str, delimiter: str) -> bool:
    names = next(csv.reader([header], delimiter=delimiter), [])
    has_shape = any(set(shape) <= set(names) for shape in source.either)
    return set(source.fields) <= set(names) and (has_shape or not source.either)


def _quote_remedy(line: str) -> str:
    if '\\"' in line:
        return 'A quote inside a value is written "" in CSV, not \\": write the file with doubled quotes.'
    return "Is a quote missing or not doubled?"


def _header(source: Source, row: list[str], line: int, delimiter: str) -> list[str]:
    if not row:
        return row
    if len(set(row)) < len(row):
        raise source.fault("The header names a column twice.", "Rename the columns.", line)
    for field in source.fields:
        if field not in row:
            problem = f"The header has no column “{field}”, only {names_of(row)}."
            remedy = "Name the column to read, or add a header"
            separated = f"; columns are separated by {_DELIMITERS.get(delimiter, repr(delimiter))}."
            raise source.fault(problem, remedy + separated, line)
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
        self.last = ""  # the line that was read last

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
        self._number, self.last = item
        self._size += len(item[1])
        if self._size > records.MAX_RECORD_BYTES:
            raise self._source.too_long(self._first)
        return item[1]
