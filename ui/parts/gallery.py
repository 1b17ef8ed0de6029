"""Shows a picture: title, chart, its words and its data table to read and download."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from ui.parts.pictures import Picture
from ui.parts.tables import show_table
from ui.parts.words import plain

_CONFIG = {"displaylogo": False, "modeBarButtonsToRemove": ["lasso2d", "select2d"]}

LEGEND_PIXELS = 92  # the toolbar, and two rows of names beneath it


def show_picture(picture: Picture, key: str, on_select: Callable[[], None] | None = None) -> None:
    """A chart with everything that belongs to it. `key` tells it apart from others on the page.

    `on_select` is called when a point is clicked (see `clicked`).
    """
    st.markdown(f"##### {plain(picture.title)}")
    if (
        sum(trace.showlegend is not False for trace in picture.figure.data) > 1
    ):  # there is a legend then, and the toolbar must not stand on it
        picture.figure.update_layout(margin_t=LEGEND_PIXELS)
    choose: dict[str, Any] = {"on_select": on_select, "selection_mode": "points"} if on_select else {}
    st.plotly_chart(picture.figure, key=f"{key}_chart", config=_CONFIG, alt=picture.words, **choose)
    st.caption(plain(picture.words))
    with st.expander("The numbers as a table", icon=":material/table:"):
        show_table(picture.table, key=f"{key}_table", words=picture.title)


def clicked(key: str) -> tuple[int, int] | None:
    """The place (x, y) of the point clicked last in the chart of this key; None when nothing is."""
    state = st.session_state.get(f"{key}_chart")
    points = state["selection"]["points"] if state else []
    return (int(points[0]["x"]), int(points[0]["y"])) if points else None
