"""Records, and the open file from which the readers of all formats take them."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.errors import CorpusError
from engine.text.streams import TextFile

MAX_RECORD_BYTES = 64 << 20  # one line, or one CSV row over several lines
PEEK_BYTES = 1 << 16  # looked at to see the shape of a file


def valid_text(text: str) -> str:
    """The text itself; raises CorpusError when it holds NUL characters or cannot be written as UTF-8."""
    if "\0" in text:
        raise CorpusError("The text contains NUL characters.")
    require_encodable(text)
    return text


def require_encodable(text: str) -> None:
    """Raises CorpusError when the text cannot be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        surrogate = f"\\u{ord(text[error.start]):04x}"
        raise CorpusError(f"The text is not valid Unicode: it contains an unpaired surrogate ({surrogate}).") from None


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a file: the line (or row) on which it begins, and its fields."""

    line: int
    values: Mapping[str, Any]
    offset: int | None = None  # bytes of the file read so far, if the stream does not count them
    place: str = ""  # added to a fault where the line does not say enough


Records = Iterator[Record | CorpusError]  # a fault stands for a record that is left out


@dataclass(frozen=True, slots=True)
class Source:
    """An open file: its unpacked bytes, and the fields to read from it (the text field first).

    It must also have all fields of one of `either`, where that is not empty: then all its fields are read. `note` takes
    sentences about what was recognised.
    """

    file: TextFile
    stream: io.BufferedReader[Any]
    fields: tuple[str, ...]
    note: Callable[[str], None]
    either: tuple[tuple[str, ...], ...] = ()

    def columns(self, names: Sequence[str]) -> tuple[str, ...]:
        """The columns of a table to read, the text first; raises CorpusError when one is missing."""
        chosen = next((shape for shape in self.either if set(shape) <= set(names)), ())
        if self.either and not chosen:
            shapes = ", ".join(" with ".join(f"“{name}”" for name in shape) for shape in self.either)
            problem = f"The table has no conversations: it has none of {shapes}, only {names_of(list(names))}."
            raise self.fault(problem, "Rename the columns.")
        return tuple(dict.fromkeys((*chosen, *self.fields, *(names if chosen else ()))))

    def fault(self, problem: str, next_step: str, line: int | None = None) -> CorpusError:
        """An error that names this file and a line."""
        return CorpusError(problem, next_step, path=self.file.name, line=line)

    def not_utf8(self, line: int, byte: int) -> CorpusError:
        """The error for a byte (counted from 1 in its line) that is not UTF-8."""
        problem = f"The text is not UTF-8 (byte {byte} of the line)."
        return self.fault(problem, "Save it as UTF-8, for example: iconv -f LATIN1 -t UTF-8 FILE > NEW.", line)

    def too_long(self, line: int) -> CorpusError:
        """The error for a record above the size limit."""
        problem = f"The record is longer than {MAX_RECORD_BYTES >> 20} MiB."
        return self.fault(problem, "Cut it into several records; a line end or a quote may be missing.", line)

    def lines(self) -> Iterator[tuple[int, str] | CorpusError]:
        """Yields decoded lines with their numbers, and faults for lines that are too long or not UTF-8."""
        number = 0
        while raw := self.stream.readline(MAX_RECORD_BYTES + 1):
            number += 1
            if len(raw) > MAX_RECORD_BYTES:
                while raw and not raw.endswith(b"\n"):
                    raw = self.stream.readline(1 << 20)
                yield self.too_long(number)
                continue
            try:
                yield number, raw.decode("utf-8")
            except UnicodeDecodeError as error:
                yield self.not_utf8(number, error.start + 1)


def names_of(names: list[str]) -> str:
    """The first dozen names, quoted, for a sentence."""
    shown = ", ".join(f"“{name[:40]}”" for name in names[:12])
    return (shown or "nothing") + (", …" if len(names) > 12 else "")
