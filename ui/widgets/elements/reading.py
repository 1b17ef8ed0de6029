"""Shares of experts as bars, each with its mark, name and number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from ui.widgets.elements import parts

_CSS = (
    parts.CSS
    + """
ul { list-style: none; margin: 0; padding: 0; }
li { display: grid; grid-template-columns: auto minmax(0, 1fr) auto; gap: 2px 8px; padding: 3px 0;
  align-items: center; }
li:first-child { font-weight: 600; }
.name { overflow-wrap: anywhere; }
.track { grid-column: 1 / -1; height: 6px; border-radius: 3px; background: var(--chosen); }
.bar { height: 6px; border-radius: 3px; }
"""
)

_JS = (
    parts.JS
    + """
const row = (one) => {
  const bar = make("div", "bar");
  bar.style.background = one.look.colour;
  bar.style.width = `${100 * one.share}%`;
  const name = make("span", "name", one.name), share = make("span", "", one.words);
  return make("li", "", mark(one.look), name, share, make("div", "track", bar));
};
export default function (component) {
  const {data, parentElement} = component;
  const place = parentElement.querySelector(".root");
  if (!isDrawn(place, data)) place.replaceChildren(make("ul", "", ...data.rows.map(row)));
}
"""
)

_draw = st.components.v2.component("reading", html='<div class="root"></div>', css=_CSS, js=_JS)


def show_reading(rows: Sequence[Mapping[str, Any]], key: str) -> None:
    """A row for each expert: `name`, `look`, `share` from 0 to 1, and the share in `words`."""
    _draw(key=key, data={"rows": list(rows)})
