"""Cards of experts, with the colour, the mark, the number that counts and the curve of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from ui.widgets.elements import parts

_CSS = (
    parts.CSS
    + """
ul { list-style: none; margin: 0; padding: 0; display: grid; gap: 14px;
  grid-template-columns: repeat(auto-fit, minmax(210px, 1fr)); }
li { border: 1px solid var(--line); border-left: 5px solid var(--card-colour); border-radius: 6px;
  padding: 12px 14px; min-width: 0; }
.name { display: flex; gap: 7px; align-items: center; font-weight: 600; overflow-wrap: anywhere; }
.name .mark { flex: none; }
.name a { text-decoration: underline; text-underline-offset: 2px; }
.badge { display: inline-block; margin: 5px 5px 3px 0; padding: 1px 8px; border-radius: 6px; font-size: 13px;
  background: var(--chosen); }
.badge.good { color: var(--st-green-text-color); background: var(--st-green-background-color); }
.badge.going { color: var(--st-blue-text-color); background: var(--st-blue-background-color); }
.badge.late { color: var(--st-orange-text-color); background: var(--st-orange-background-color); }
.number { display: flex; align-items: end; gap: 10px; margin-top: 6px; }
.value { font-size: 22px; font-weight: 600; line-height: 1.1; }
svg { flex: 1; min-width: 0; height: 34px; overflow: visible; }
polyline { fill: none; stroke: var(--card-colour); stroke-width: 2; vector-effect: non-scaling-stroke; }
"""
)

_JS = (
    parts.JS
    + """
const line = (values) => {
  const NS = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(NS, "svg");
  svg.setAttribute("viewBox", "0 0 100 34");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  const low = Math.min(...values), high = Math.max(...values), path = document.createElementNS(NS, "polyline");
  const step = 100 / (values.length - 1), scale = 32 / (high - low || 1);
  const at = (value, place) => `${step * place},${1 + scale * (high - value)}`;
  path.setAttribute("points", values.map(at).join(" "));
  svg.append(path);
  return svg;
};
const card = (one, open) => {
  const place = make("li", "", make("div", "name", mark(one.look), link(one, open, "", one.name)));
  place.style.setProperty("--card-colour", one.look.colour);
  one.badges.forEach(([words, kind]) => place.append(make("span", `badge ${kind}`, words)));
  const words = make("div", "", make("div", "value", one.value), make("div", "muted", one.unit));
  const number = make("div", "number", words);
  if (one.curve.length > 1) number.append(line(one.curve));
  place.append(number, ...one.words.map((line) => make("div", "muted", line)));
  return place;
};
export default function (component) {
  const {data, parentElement, setTriggerValue} = component;
  const place = parentElement.querySelector(".root");
  if (isDrawn(place, data)) return;
  const list = make("ul", "", ...data.cards.map((one) => card(one, (id) => setTriggerValue("open", id))));
  place.replaceChildren(list);
}
"""
)

_draw = st.components.v2.component("expert_cards", html='<div class="root"></div>', css=_CSS, js=_JS)


def show_cards(cards: Sequence[Mapping[str, Any]], key: str) -> str:
    """Draws `ui.present.picture.card_of` of each; the id of the name that was clicked, empty without a click."""
    return _draw(key=key, data={"cards": list(cards)}, on_open_change=lambda: None).open or ""
