"""Reads JSON values one after the other, in an array or without one, however large the file is."""

from __future__ import annotations

import codecs
import json
import re
from typing import Any

from engine.errors import CorpusError
from engine.text import records
from engine.text.records import Record, Records, Source

_CHUNK = 1 << 16
_SPACE = re.compile(r"[ \t\r\n]*")


class _RepeatedKeyError(ValueError):
    """An object that names a field twice."""


def loads(text: str) -> Any:
    """A JSON value; raises ValueError for what is none, and for an object that names a field twice."""
    return json.loads(text, object_pairs_hook=_object)


def record_of(source: Source, value: object, line: int, place: str = "") -> Record | CorpusError:
    """The record that a value is, or the fault of one that is no object."""
    if isinstance(value, dict):
        return Record(line, value, place=place)
    problem = f"The line must be a JSON object, got a {type(value).__name__}.{place}"
    return source.fault(problem, 'Write {"text": "…"}.', line)


def read_json_values(source: Source) -> Records:
    """The objects of an array, or objects over several lines. No more than one of them is in memory.

    A fault in the JSON ends the file: nothing shows where the next record begins.
    """
    text = _Text(source)
    is_array = text.skip("[")
    number, line = 0, 0
    while not (text.skip("]") if is_array else text.is_at_end()):
        if number and is_array and not text.skip(","):
            raise source.fault("A comma is missing between two records of the array.", "Fix the file.", text.line)
        number, before, line = number + 1, line, text.line_of_next()
        place = f" It is record {number:,} of the array." if is_array and line == before else ""
        yield record_of(source, text.value(), line, place)
    if not text.is_at_end():
        raise source.fault("Something follows the end of the array.", "Write one record per line.", text.line)


class _Text:
    """The text of a file from some position on, of which more is read when it is needed."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._json = json.JSONDecoder(object_pairs_hook=_object)
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

    def line_of_next(self) -> int:
        """The line on which the next value begins."""
        self.is_at_end()
        return self.line

    def value(self) -> Any:
        """The next value; raises CorpusError when it is no JSON, or larger than a record may be."""
        size = _CHUNK
        while True:
            try:
                value, end = self._json.raw_decode(self._text, self._position)
                if isinstance(value, dict | list) or end < len(self._text) or not self._read(size):
                    self._advance(end)
                    return value
            except RecursionError:
                raise self._source.fault("The record is nested too deeply.", "Remove the nesting.", self.line) from None
            except _RepeatedKeyError as error:
                raise self._source.fault(f"The record is not JSON ({error}).", "Fix it.", self.line) from None
            except json.JSONDecodeError as error:
                if len(self._text) - self._position > records.MAX_RECORD_BYTES:
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


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _RepeatedKeyError(f"it names “{twice[:40]}” twice")
    return values
