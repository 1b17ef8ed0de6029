"""A table with bars: the perplexity of each domain now, with a line where it was. A new choice changes it in place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ui.widgets.elements.component import component

_draw = component("domain_bars")


def show_domain_bars(data: Mapping[str, Any], key: str) -> None:
    """Draws `ui.present.mixture_effect.bars_of`."""
    _draw(key=key, data=dict(data))
