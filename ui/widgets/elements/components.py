"""Drawings of our own in the studio: the script and the style of each are the files of its name next to this one.

They draw in the theme's colours, and set the text of users as text only, never as markup.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from ui.present.charts.token_view import CSS, DRAW, HTML, SAVE, TokenData
from ui.present.pages import SEARCH, Page

_HERE = Path(__file__).parent
_ADVICE = (
    "The studio's server does not answer. If it was stopped, start it again with “workbench up”. "
    "This page reconnects automatically, and jobs resume."
)


def _source(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _component(name: str, more: str = "") -> Callable[..., Any]:
    """Declares a component that draws; it finds what all of them share (`shared.js`, `shared.css`) before its own."""
    css, js = (_source(f"shared.{kind}") + _source(f"{name}.{kind}") for kind in ("css", "js"))
    return st.components.v2.component(name, html='<div class="root"></div>', css=css, js=more + js)


def _unseen_component(name: str) -> Callable[..., Any]:
    return st.components.v2.component(name, html="", js=_source(f"{name}.js"))


_draw_bars, _draw_cards = _component("domain_bars"), _component("expert_cards")
_draw_picture, _draw_grid = _component("living_picture"), _component("heat_grid")
_draw_download, _draw_notify = _component("download_button", SAVE), _component("notify_button")
_connect, _follow = _unseen_component("connection"), _unseen_component("frame_address")
_commit, _show = _unseen_component("live_field"), _unseen_component("in_view")
_open_search, _notify = _unseen_component("search_key"), _unseen_component("notifications")
_PAUSE = 700  # milliseconds without a key
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


def show_grid(data: Mapping[str, Any], key: str, on_click: Callable[[], None] | None = None) -> None:
    """A table of coloured cells (`small_grid`); `on_click` finds column and row in the state `cell` of `key`."""
    _draw_grid(key=key, data={**data, "clicks": on_click is not None}, on_cell_change=on_click or (lambda: None))


def download_button(
    label: str, text: str, file_name: str, key: str, type: Literal["text/csv", "image/png"] = "text/csv"
) -> None:
    """A button that saves a text as a file; as an image the browser draws it, an SVG, at twice its size.

    Streamlit's own names a file of the server, which goes with a rerun of the part of the page that it is in.
    """
    _draw_download(key=key, data={"label": label, "text": text, "file_name": file_name, "type": type})


def notify_button(*, is_on: bool, key: str) -> bool | None:
    """A button for a notification of the browser: whether it was just switched on or off, None without a click.

    The browser is asked for its permission at the click; where it refuses, the button says so and stays off.
    """
    wanted: bool | None = _draw_notify(key=key, data={"is_on": is_on}, on_wanted_change=lambda: None).wanted
    return wanted


def show_notifications(ends: Sequence[Mapping[str, str]]) -> None:
    """Shows each of these as a notification of the browser, once: `id`, `title` and `body`."""
    _notify(key="notification_list", data={"ends": [dict(end) for end in ends]})


def show_tokens(data: TokenData, key: str) -> None:
    """A text by token (`token_view.weight_data` or `difference_data`), as the playground draws it.

    With `answered` its legend has switches; the names of the experts that are off are then the state `off` of `key`.
    """
    _draw_tokens(key=key, data=dict(data), on_off_change=lambda: None)


def follow_frame(around: str) -> None:
    """Keeps the address of a framed page in the studio's own. `around` is the CSS selector of what the frame is in."""
    _follow(key="frame_address", data={"around": around})


def commit_while_typing(around: str, key: str) -> None:
    """The text area in what the CSS selector `around` names says its text while one writes, not only at the end."""
    _commit(key=key, data={"around": around, "pause": _PAUSE})


def bring_into_view(around: str, click: int, key: str) -> None:
    """Scrolls what the CSS selector `around` names into view once for each number of a click; 0 is none."""
    _show(key=key, data={"around": around, "click": click})


def watch_connection() -> None:
    """Says what to do while the server is away, and loads the page again once another answers; once for each page."""
    context = get_script_run_ctx()
    data = {"session": context.session_id if context else "", "advice": _ADVICE}
    _connect(key="connection", data=data, on_reconnected_change=lambda: None)


def open_search_by_key(page: Page) -> None:
    """The keys / and Ctrl+K open the page of the search, or go into its field; once for each page."""
    _open_search(key="search_key", data={"path": f"/{SEARCH.address}", "is_here": page is SEARCH})
