"""Drawings of our own in the studio: the script and the style of each are the files of its name next to this one.

They draw in the theme's colours, and set the text of users as text only, never as markup.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from ui.present.charts.token_view import CSS, DRAW, HTML, TokenData

_HERE = Path(__file__).parent
_ADVICE = (
    "The studio's server does not answer. If it was stopped, start it again with “workbench up”. "
    "This page reconnects automatically, and jobs resume."
)


def _source(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _component(name: str) -> Callable[..., Any]:
    """Declares a component that draws; it finds what all of them share (`shared.js`, `shared.css`) before its own."""
    css, js = (_source(f"shared.{kind}") + _source(f"{name}.{kind}") for kind in ("css", "js"))
    return st.components.v2.component(name, html='<div class="root"></div>', css=css, js=js)


def _unseen_component(name: str) -> Callable[..., Any]:
    return st.components.v2.component(name, html="", js=_source(f"{name}.js"))


_draw_bars, _draw_cards = _component("domain_bars"), _component("expert_cards")
_draw_picture, _draw_shares = _component("living_picture"), _component("expert_shares")
_connect, _follow = _unseen_component("connection"), _unseen_component("frame_address")
_draw_tokens = st.components.v2.component("token_view", html=HTML, css=CSS, js=DRAW + _source("tokens.js"))


def show_domain_bars(data: Mapping[str, Any], key: str) -> None:
    """A table with bars: the perplexity of each domain now, with a line where it was (`mixture_effect.bars_of`)."""
    _draw_bars(key=key, data=dict(data))


def show_cards(cards: Sequence[Mapping[str, Any]], key: str) -> str:
    """Cards of experts (`picture.card_of`); the id of the name that was clicked, empty without a click."""
    return _draw_cards(key=key, data={"cards": list(cards)}, on_open_change=lambda: None).open or ""


def show_picture(data: Mapping[str, Any], key: str) -> str:
    """Text, the experts that lead on it and their mixture (`picture.picture_of`); the id of what was clicked."""
    return _draw_picture(key=key, data=dict(data), on_open_change=lambda: None).open or ""


def show_expert_shares(rows: Sequence[Mapping[str, Any]], key: str) -> None:
    """A bar for each expert: `name`, `look`, `share` from 0 to 1, and the share in `words`."""
    _draw_shares(key=key, data={"rows": list(rows)})


def show_tokens(data: TokenData, key: str) -> None:
    """A text by token (`token_view.weight_data` or `difference_data`), as the playground draws it."""
    _draw_tokens(key=key, data=dict(data))


def follow_frame(around: str) -> None:
    """Keeps the address of a framed page in the studio's own. `around` is the CSS selector of what the frame is in."""
    _follow(key="frame_address", data={"around": around})


def watch_connection() -> None:
    """Says what to do while the server is away, and loads the page again once another answers; once for each page."""
    context = get_script_run_ctx()
    data = {"session": context.session_id if context else "", "advice": _ADVICE}
    _connect(key="connection", data=data, on_reconnected_change=lambda: None)
