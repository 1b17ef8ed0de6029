"""Shows a picture: title, chart, its words and its data table to read and download."""

from __future__ import annotations

import streamlit as st

from ui.parts.pictures import Picture
from ui.parts.tables import show_table
from ui.parts.words import plain

_CONFIG = {"displaylogo": False, "modeBarButtonsToRemove": ["lasso2d", "select2d"]}

LEGEND_PIXELS = 92  # the toolbar, and two rows of names beneath it


def show_picture(picture: Picture, key: str) -> None:
    """A chart with everything that belongs to it. `key` tells it apart from others on the page."""
    st.markdown(f"##### {plain(picture.title)}")
    if len(picture.figure.data) > 1:  # there is a legend then, and the toolbar must not stand on it
        picture.figure.update_layout(margin_t=LEGEND_PIXELS)
    st.plotly_chart(picture.figure, key=f"{key}_chart", config=_CONFIG, alt=picture.words)
    st.caption(plain(picture.words))
    with st.expander("The numbers as a table", icon=":material/table:"):
        show_table(picture.table, key=f"{key}_table", words=picture.title)
