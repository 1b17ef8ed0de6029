"""Marks in the text of conversations: around words that must stay words, and where contents begin and end.

They are noncharacters of Unicode, which no text that is exchanged holds; a text that holds one of them is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.errors import ChatTemplateError
from engine.foreign_files import short
from engine.text.tokenizer import Tokenizer

OPEN, CLOSE = "\ufdd0", "\ufdd1"  # around text that must stay text
BEGINS, ANSWER_ENDS, OTHER_BEGINS = "\ufdd2", "\ufdd3", "\ufdd4"  # of contents: a user's, an answer's, another's
_MARK: Final = re.compile(f"[{OPEN}{CLOSE}{BEGINS}{ANSWER_ENDS}{OTHER_BEGINS}]")
_MARKED: Final = re.compile(f"{OPEN}([^{OPEN}{CLOSE}]*){CLOSE}|[{OPEN}{CLOSE}]")
_ESCAPED: Final = "\\ufdd0"  # how Python and JSON write the first mark


class Token(NamedTuple):
    """An id and the characters (start, end) of the rendered text that it stands for."""

    id: int
    start: int
    end: int


def harmless(fields: Mapping[str, Any], control: re.Pattern[str]) -> dict[str, Any]:
    """The fields of a message, or values for a template, with marks around every text of a control token.

    A list or an object is written by the template in ways that lose marks, such as `string`. Raises ChatTemplateError
    where one holds the text of a control token, and where any text holds a mark.
    """
    marked: dict[str, Any] = {}
    for name, value in fields.items():
        texts = list(_texts(value))
        if mark := next(filter(None, map(_MARK.search, texts)), None):
            raise ChatTemplateError(
                f"“{short(name)}” holds the character U+{ord(mark.group()):X}, which Unicode reserves for programs.",
                "Remove it.",
            )
        if isinstance(value, str):
            marked[name] = control.sub(f"{OPEN}\\g<0>{CLOSE}", value)
            continue
        if match := next(filter(None, map(control.search, texts)), None):
            raise ChatTemplateError(
                f"“{short(name)}” holds “{short(match.group())}”, the text of a control token, inside a list or an "
                "object.",
                "Remove it, or give it as a plain text.",
            )
        marked[name] = value
    return marked


def loses_marks(rendered: str, fields: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a template wrote the text of a control token, in one of these fields, as Python writes objects."""
    return _ESCAPED in rendered and any(OPEN in text for text in _texts(fields))


def _texts(value: Any) -> Iterator[str]:
    """Every text in a value, names of fields included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from (text for item in value.items() for text in _texts(item))
    elif isinstance(value, Sequence):
        yield from (text for one in value for text in _texts(one))


def encoded(tokenizer: Tokenizer, text: str) -> list[Token]:
    """The tokens of a rendered text: those of the template, and ordinary ones for what is marked."""
    tokens: list[Token] = []
    for start, piece, is_marked in _split(text):
        ids, offsets = tokenizer.encode_with_offsets(piece, control_tokens=not is_marked, continues=start > 0)
        if is_marked and tokenizer.control_ids.intersection(ids):  # a control token that is not special
            ids, offsets = _by_character(tokenizer, piece)
        tokens += [Token(id, start + a, start + b) for id, (a, b) in zip(ids, offsets, strict=True)]
    return tokens


def _by_character(tokenizer: Tokenizer, text: str) -> tuple[list[int], list[tuple[int, int]]]:
    """The ids of each character alone, so that none is of several."""
    ids: list[int] = []
    offsets: list[tuple[int, int]] = []
    for i, character in enumerate(text):
        of_one, _ = tokenizer.encode_with_offsets(character, control_tokens=False, continues=True)
        ids += of_one
        offsets += [(i, i + 1)] * len(of_one)
    return ids, offsets


def _split(text: str) -> Iterator[tuple[int, str, bool]]:
    """The pieces of a rendered text: where each starts, and whether it is marked. A mark that lost its other is cut."""
    if OPEN not in text and CLOSE not in text:
        yield 0, text, False
        return
    start = 0
    for mark in _MARKED.finditer(text):
        if start < mark.start():
            yield start, text[start : mark.start()], False
        if mark.group(1):
            yield mark.start(1), mark.group(1), True
        start = mark.end()
    if start < len(text):
        yield start, text[start:], False


def within(
    tokens: Sequence[Token], spans: Sequence[tuple[int, int]], limits: Sequence[int] | None = None
) -> NDArray[np.bool_]:
    """A mask [T] of the tokens that share a character with one of the spans, and end before the span's limit."""
    _, starts_T, ends_T = np.array(tokens, dtype=np.int64).reshape(-1, 3).T
    is_inside_T = np.zeros(len(tokens), dtype=np.bool_)
    for i, (start, end) in enumerate(spans):
        shares_T = (starts_T < end) & (ends_T > start)
        is_inside_T |= shares_T if limits is None else shares_T & (ends_T <= limits[i])
    return is_inside_T
