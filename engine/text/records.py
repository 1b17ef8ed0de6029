"""What readers of files share: records, the open file they come from, and its decoded lines."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from engine.errors import CorpusError
from engine.text.streams import TextFile

MAX_RECORD_BYTES = 64 << 20  # one line, or one CSV row over several lines


@dataclass(frozen=True, slots=True)
class Record:
    """One record as it stands in its file: the line (or row) it begins on, and its fields."""

    line: int
    values: Mapping[str, Any]
    offset: int | None = None  # bytes of the file read so far, where the stream does not tell


Found = Iterator[Record | CorpusError]  # a fault takes the place of a record that is left out


@dataclass(frozen=True, slots=True)
class Source:
    """An open file: its unpacked bytes, and the fields that are wanted from it (that of the text first)."""

    file: TextFile
    stream: io.BufferedReader[Any]
    fields: tuple[str, ...]

    def fault(self, problem: str, next_step: str, line: int | None = None) -> CorpusError:
        """What is wrong with this file, and where."""
        return CorpusError(problem, next_step, path=self.file.name, line=line)

    def not_utf8(self, line: int, byte: int) -> CorpusError:
        """The fault of a byte (counted from 1 in its line) that is not UTF-8."""
        return self.fault(
            f"The text must be UTF-8, but byte {byte} of the line is not.",
            "Save it as UTF-8, for example: iconv -f LATIN1 -t UTF-8 FILE > NEW.",
            line,
        )

    def too_long(self, line: int) -> CorpusError:
        """The fault of a record that no document can be."""
        return self.fault(
            f"A record must have at most {MAX_RECORD_BYTES >> 20} MiB, but this one is longer.",
            "Cut it into several records; is a line end or a quote missing?",
            line,
        )

    def lines(self) -> Iterator[tuple[int, str] | CorpusError]:
        """Decoded lines with their numbers; faults in place of those that are too long or not UTF-8."""
        number = 0
        while raw := self.stream.readline(MAX_RECORD_BYTES + 1):
            number += 1
            if len(raw) > MAX_RECORD_BYTES:
                self._skip_line(raw)
                yield self.too_long(number)
                continue
            try:
                yield number, raw.decode("utf-8")
            except UnicodeDecodeError as error:
                yield self.not_utf8(number, error.start + 1)

    def _skip_line(self, raw: bytes) -> None:
        while raw and not raw.endswith(b"\n"):
            raw = self.stream.readline(1 << 20)


def names_of(names: list[str]) -> str:
    """Names for a sentence, the first dozen of them."""
    shown = ", ".join(f"“{name[:40]}”" for name in names[:12])
    return (shown or "nothing") + (", …" if len(names) > 12 else "")
