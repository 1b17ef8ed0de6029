"""A table with bars: the perplexity of each domain now, with a line where it was. A new choice changes it in place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from ui.widgets.elements import parts

_CSS = (
    parts.CSS
    + """
table { border-collapse: collapse; width: 100%; font-size: 15px; }
th, td { padding: 7px 8px; text-align: left; border-bottom: 1px solid var(--line); font-weight: 400; }
thead th { font-size: 13.5px; font-weight: 600; color: var(--muted); background: var(--st-secondary-background-color); }
tbody th { overflow-wrap: anywhere; }
tbody th .mark { margin-right: 6px; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.now { font-weight: 600; }
td.bars { width: 36%; }
.track { position: relative; height: 16px; }
.bar { position: absolute; inset: 1px auto 1px 0; border-radius: 3px; }
.line { position: absolute; top: -2px; bottom: -2px; width: 3px; background: var(--st-text-color); }
.badge { padding: 1px 8px; border-radius: 6px; font-size: 13px; background: var(--chosen); white-space: nowrap; }
.badge.good { color: var(--st-green-text-color); background: var(--st-green-background-color); }
.badge.bad { color: var(--st-red-text-color); background: var(--st-red-background-color); }
@container (max-width: 560px) { .bars, .before { display: none; } th, td { padding: 6px 4px; font-size: 14px; } }
"""
)

_JS = (
    parts.JS
    + """
const HEADS = ["Text", "", "", "Now", "Change", ""];
const CLASSES = ["", "bars", "number before", "number now", "number", ""];
const head = (data) => make("thead", "", make("tr", "", ...HEADS.map((words, place) => {
  const cell = make("th", CLASSES[place], place === 2 ? data.before : words);
  cell.scope = "col";
  if (!cell.textContent) cell.append(make("span", "unseen", place === 1 ? "Bar" : "Verdict"));
  return cell;
})));
const fresh = (one) => {
  const cells = CLASSES.slice(1).map((name) => make("td", name));
  const row = make("tr", "", make("th", "", mark(one.look), one.name), ...cells);
  row.firstChild.scope = "row";
  const bar = make("div", "bar");
  bar.style.background = one.look.colour;
  row.children[1].append(make("div", "track", bar, make("div", "line")));
  row.children[5].append(make("span", "badge"));
  return row;
};
const fill = (row, one) => {
  const [bar, line] = row.children[1].firstChild.children;
  bar.style.width = `${100 * one.now}%`;
  line.style.left = `calc(${100 * (one.before ?? 0)}% - 1px)`;
  line.hidden = one.before === null;
  one.words.forEach((words, place) => { row.children[2 + place].textContent = words; });
  const badge = row.children[5].firstChild;
  badge.className = `badge ${one.verdict[1]}`;
  badge.textContent = one.verdict[0];
};
export default function (component) {
  const {data, parentElement} = component;
  const place = parentElement.querySelector(".root");
  if (isDrawn(place, data)) return;
  const looks = JSON.stringify([data.before, data.rows.map((one) => [one.name, one.look])]);
  if (place.dataset.looks !== looks) {
    place.dataset.looks = looks;
    const body = make("tbody", "", ...data.rows.map(fresh)), spoken = make("div", "unseen");
    spoken.setAttribute("role", "status");
    place.replaceChildren(make("table", "", head(data), body), spoken);
  }
  const rows = place.querySelectorAll("tbody tr");
  data.rows.forEach((one, number) => fill(rows[number], one));
  place.lastChild.textContent = data.spoken;
}
"""
)

_draw = st.components.v2.component("domain_bars", html='<div class="root"></div>', css=_CSS, js=_JS)


def show_domain_bars(data: Mapping[str, Any], key: str) -> None:
    """Draws `ui.present.mixture_effect.bars_of`."""
    _draw(key=key, data=dict(data))
