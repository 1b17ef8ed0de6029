"""Cards of experts, with the colour, the mark, the number that counts and the curve of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ui.widgets.elements.component import component

_draw = component("expert_cards")


def show_cards(cards: Sequence[Mapping[str, Any]], key: str) -> str:
    """Draws `ui.present.picture.card_of` of each; the id of the name that was clicked, empty without a click."""
    return _draw(key=key, data={"cards": list(cards)}, on_open_change=lambda: None).open or ""
