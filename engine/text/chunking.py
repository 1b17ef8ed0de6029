"""A long text in pieces of about equal length, cut where lines or words end."""

from __future__ import annotations

from collections.abc import Iterator


def pieces(text: str, length: int) -> Iterator[str]:
    """As few pieces as hold at most so many characters each, without the white space around them."""
    start, num_left = 0, -(-len(text) // length)
    while num_left > 1:
        share = -(-(len(text) - start) // num_left)
        end = _end(text, start + share // 2, start + share)
        yield text[start:end].strip()
        start, num_left = end, max(num_left - 1, -(-(len(text) - end) // length))
    yield text[start:].strip()


def _end(text: str, first: int, last: int) -> int:
    """Behind the last line that ends in this stretch, else behind its last word, else its end."""
    for sign in ("\n", " "):
        if (place := text.rfind(sign, first, last)) >= 0:
            return place + 1
    return last
