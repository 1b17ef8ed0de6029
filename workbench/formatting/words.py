"""Counts with their nouns, and lists of names."""

from __future__ import annotations

from collections.abc import Sequence


def pluralize(number: int, thing: str, many: str = "") -> str:
    """`1 expert`, `2 experts`, `12,000 documents`."""
    return f"{number:,} {thing if number == 1 else many or thing + 's'}"


def listed(names: Sequence[str], limit: int = 6) -> str:
    """Names in a row, cut after `limit` with how many more there are."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
