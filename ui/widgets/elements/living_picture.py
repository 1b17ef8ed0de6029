"""The picture of the page Overview: text, the experts that lead on it, and the mixture that they make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ui.widgets.elements.component import component

_draw = component("living_picture")


def show_picture(data: Mapping[str, Any], key: str) -> str:
    """Draws `ui.present.picture.picture_of`; the id of what was clicked, empty without a click."""
    return _draw(key=key, data=dict(data), on_open_change=lambda: None).open or ""
