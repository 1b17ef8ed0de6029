"""A text by token in the studio; the playground draws the same (`ui.present.charts.token_view`)."""

from __future__ import annotations

import streamlit as st

from ui.present.charts.token_view import CSS, DRAW, HTML, TokenData
from ui.widgets.elements.component import source

_draw = st.components.v2.component("token_view", html=HTML, css=CSS, js=DRAW + source("tokens.js"))


def show_tokens(data: TokenData, key: str) -> None:
    """Draws `weight_data` or `difference_data`."""
    _draw(key=key, data=dict(data))
