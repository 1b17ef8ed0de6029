"""A reader for each file format: yields records and recoverable faults; raises fatal faults."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Callable
from typing import Any

from engine.errors import CorpusError
from engine.path_kinds import HEAD_BYTES, describe_head, describe_path
from engine.text import records
from engine.text.plain_text import read_plain
from engine.text.readers.csv_tables import read_csv
from engine.text.readers.json_values import loads, read_json_values, record_of
from engine.text.readers.parquet import read_parquet
from engine.text.records import Record, Records, Source
from engine.text.streams import KNOWN_KINDS, TextFile, Unpacked


def read_records(
    file: TextFile,
    fields: tuple[str, ...],
    seen: Callable[[int], None],
    either: tuple[tuple[str, ...], ...] = (),
    note: Callable[[str], None] = lambda _: None,
) -> Records:
    """The records of a file; `fields[0]` is the text field. Calls `seen` with the bytes read from disk.

    A table must also have all columns of one of `either`, if given. Sentences for the person go to `note`.
    """
    described = describe_path(file.path, "The file")
    if described.kind in ("pointer", "device", "unreadable"):
        raise CorpusError(described.sentence, described.remedy, path=file.name)
    reader = READERS.get(file.kind or "")
    if reader is None:
        raise unknown_format(file)
    raw = Unpacked(file)
    with io.BufferedReader(raw, 1 << 20) as stream:
        if file.kind != "parquet":
            refuse_foreign(stream, file.name)
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


def refuse_foreign(stream: io.BufferedReader[Any], name: str) -> None:
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


def _json(source: Source) -> Records:
    """One object per line; or an array, or objects over several lines, one after the other."""
    start = source.stream.peek(records.PEEK_BYTES)[: records.PEEK_BYTES].lstrip()
    if start[:1] == b"[" or re.match(rb"\{\s*\n", start):
        yield from read_json_values(source)
        return
    for item in source.lines():
        if isinstance(item, CorpusError):
            yield item
        elif item[1].strip():
            yield _object(source, *item)


def _object(source: Source, line: int, text: str) -> Record | CorpusError:
    try:
        return record_of(source, loads(text), line)
    except RecursionError:
        return source.fault("The line is JSON that is nested too deeply.", "Remove the nesting.", line)
    except ValueError as error:
        return source.fault(f"The line is not JSON ({error}).", "Fix or remove it.", line)


def _tsv(source: Source) -> Records:
    return read_csv(source, "\t")


READERS: dict[str, Callable[[Source], Records]] = {
    "text": read_plain,
    "json": _json,
    "csv": read_csv,
    "tsv": _tsv,
    "parquet": read_parquet,
}
