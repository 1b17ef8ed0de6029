"""Counts with their nouns."""

from __future__ import annotations


def pluralize(number: int, thing: str, many: str = "") -> str:
    """`1 expert`, `2 experts`, `12,000 documents`."""
    return f"{number:,} {thing if number == 1 else many or thing + 's'}"
