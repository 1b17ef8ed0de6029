"""Cuts plain text into documents at paragraph borders, however long its lines are, and long texts into pieces."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator

from engine.text.streams import Record, Records, Source, TextFile

DOCUMENT_CHARACTERS = 10_000  # a document ends at the first paragraph border after this many
SHORT_BYTES = 6 * DOCUMENT_CHARACTERS  # a text below this, imported without others, gives too few documents to split
PIECE_BYTES = 8192

Lines = Iterable[tuple[int, str]]  # each with its number; a long line in several pieces


def read_plain(source: Source) -> Records:
    """Documents of a text file."""
    for line, text in cut_documents(_decode_pieces(source), document_characters(source.file)):
        yield Record(line, {source.fields[0]: text})


def document_characters(file: TextFile) -> int:
    """The characters after which a document of a file ends: fewer in a short text that is the only one imported."""
    is_short = file.is_only and file.size_bytes < SHORT_BYTES
    return max(file.size_bytes // 10, 100) if is_short else DOCUMENT_CHARACTERS


def cut_documents(lines: Lines, length: int = DOCUMENT_CHARACTERS) -> Iterator[tuple[int, str]]:
    """Yields documents with the number of their first line.

    A document ends at a paragraph border after `length` characters, else at a line end, a space, or anywhere.
    """
    buffer: list[str] = []
    size, first = 0, 1
    for line, piece in lines:
        if not buffer:
            first = line
            if not piece.strip("\r\n"):
                continue
        buffer.append(piece)
        size += len(piece)
        if size >= length and not piece.strip():
            yield first, "".join(buffer).strip("\r\n")
            buffer, size = [], 0
        while size >= 2 * length:
            text = "".join(buffer)
            cut = _cut_point(text, length, 2 * length)
            yield first, text[:cut].strip("\r\n")
            first += text.count("\n", 0, cut)
            buffer, size = [text[cut:]], len(text) - cut
    if rest := "".join(buffer).strip("\r\n"):
        yield first, rest


def _cut_point(text: str, first: int, last: int) -> int:
    """The position after the last line end between `first` and `last`, else after the last space, else `last`."""
    for separator in ("\n", " "):
        if (position := text.rfind(separator, first, last)) >= 0:
            return position + 1
    return last


def pieces(text: str, length: int) -> Iterator[str]:
    """Splits a text into as few pieces as possible of at most `length` characters, stripped of white space."""
    start, num_left = 0, -(-len(text) // length)
    while num_left > 1:
        share = -(-(len(text) - start) // num_left)
        end = _cut_point(text, start + share // 2, start + share)
        yield text[start:end].strip()
        start, num_left = end, max(num_left - 1, -(-(len(text) - end) // length))
    yield text[start:].strip()


def _decode_pieces(source: Source) -> Iterator[tuple[int, str]]:
    """Yields decoded lines in pieces of bounded size."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    line, column = 1, 0
    while raw := source.stream.readline(PIECE_BYTES):
        pending = len(decoder.getstate()[0])
        is_line_end = raw.endswith(b"\n")
        try:
            piece = decoder.decode(raw, final=is_line_end)
        except UnicodeDecodeError as error:
            raise source.not_utf8(line, column - pending + error.start + 1) from None
        if "\0" in piece:
            problem = "The text contains NUL bytes."
            raise source.fault(problem, "Check that it is text, and remove them: tr -d '\\000' < FILE > NEW.", line)
        yield line, piece
        line, column = (line + 1, 0) if is_line_end else (line, column + len(raw))
    if decoder.getstate()[0]:
        raise source.not_utf8(line, column)
