"""Tables: sortable, downloadable, with alternative text for screen readers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import streamlit as st

from ui.present.csv_text import csv_text
from workbench.formatting.number_format import DASH
from workbench.formatting.palette import Look

NO_VALUE = f"{DASH} stands where a value is not known or was not measured."

Rows = Sequence[Mapping[str, Any]]


def show_table(
    rows: Rows,
    key: str,
    words: str,
    *,
    on_select: Callable[[], None] | None = None,
    looks: Iterable[Look] = (),
    max_height: int = 400,
    widths: Mapping[str, int] = MappingProxyType({}),
) -> None:
    """Rows as a table with its download; `on_select` is called when rows are ticked (see `ticked`).

    A column `mark` is drawn in the colours of `looks`. A table of more than `max_height` pixels scrolls. Columns are as
    wide as their values are when the table is first drawn, or as wide as `widths` sets them (pixels). None is drawn as
    a dash, which a caption explains; an empty text, where there is nothing to say, as an empty cell.
    """
    height = min(36 * (len(rows) + 1) + 2, max_height)
    columns: dict[str, Any] = {name: st.column_config.NumberColumn(format=pattern) for name, pattern in _formats(rows)}
    columns |= {name: st.column_config.Column(width=width) for name, width in widths.items()}
    if colours := {look.mark: look.colour for look in looks}:
        columns["mark"] = st.column_config.MultiselectColumn(options=list(colours), color=list(colours.values()))
    choose: dict[str, Any] = {"on_select": on_select, "selection_mode": "multi-row"} if on_select else {}
    st.dataframe(
        [{**row, "mark": [row["mark"]]} for row in rows] if colours else list(rows),
        key=key,
        hide_index=True,
        height=height,
        alt=words,
        column_config=columns or None,
        placeholder=DASH,
        **choose,
    )
    if any(value is None for row in rows for value in row.values()):
        st.caption(NO_VALUE)
    offer_csv(rows, key, f"{key}_download")


def offer_csv(rows: Rows, name: str, key: str) -> None:
    """A button that downloads rows as NAME.csv."""
    st.download_button(
        "Download as CSV",
        as_csv(rows),
        file_name=f"{name}.csv",
        mime="text/csv",
        key=key,
        on_click="ignore",
        icon=":material/download:",
        type="tertiary",
    )


def _formats(rows: Rows) -> Iterator[tuple[str, str]]:
    """The columns of numbers that need a format of their own, with it."""
    for name in rows[0] if rows else ():
        values = [row[name] for row in rows if row.get(name) is not None]
        types = set(map(type, values))
        if name.endswith("(%)") and float in types:
            yield name, "%.1f"
        elif types == {int} and max(values) >= 1000:  # large enough to need separators
            yield name, "localized"
        elif types == {float} and min(values) >= 1 and max(values) >= 10:  # so large that two decimals are enough
            yield name, "%.1f" if "perplexity" in name else "%.2f"


def ticked(key: str) -> list[int]:
    """The places of the rows ticked in the table with this key."""
    state = st.session_state.get(key)
    return list(state["selection"]["rows"]) if state else []


def as_csv(rows: Rows) -> str:
    """Rows as CSV text, with the names of the first row's columns."""
    names = list(rows[0]) if rows else []
    return csv_text(([row.get(name, "") for name in names] for row in rows), names)
