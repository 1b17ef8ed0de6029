"""Cuts a long text into pieces of about equal length, at the ends of lines or words."""

from __future__ import annotations

from collections.abc import Iterator


def pieces(text: str, length: int) -> Iterator[str]:
    """Splits a text into as few pieces as possible of at most `length` characters, stripped of white space."""
    start, num_left = 0, -(-len(text) // length)
    while num_left > 1:
        share = -(-(len(text) - start) // num_left)
        end = _end(text, start + share // 2, start + share)
        yield text[start:end].strip()
        start, num_left = end, max(num_left - 1, -(-(len(text) - end) // length))
    yield text[start:].strip()


def _end(text: str, first: int, last: int) -> int:
    """The position after the last line end between `first` and `last`, else after the last space, else `last`."""
    for separator in ("\n", " "):
        if (position := text.rfind(separator, first, last)) >= 0:
            return position + 1
    return last
