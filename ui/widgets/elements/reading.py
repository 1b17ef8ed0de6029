"""Shares of experts as bars, each with its mark, name and number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ui.widgets.elements.component import component

_draw = component("reading")


def show_reading(rows: Sequence[Mapping[str, Any]], key: str) -> None:
    """A row for each expert: `name`, `look`, `share` from 0 to 1, and the share in `words`."""
    _draw(key=key, data={"rows": list(rows)})
