"""Charts and tables: sortable, downloadable, with alternative text for screen readers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

import plotly.graph_objects as go
import streamlit as st

from ui.present.charts.small_grid import small_grid
from ui.present.csv_text import csv_text
from ui.present.text.formatting import plain
from ui.widgets.elements import components
from workbench.formatting.chart_template import HEIGHT, CaptionedChart
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
    """Rows as a table with its download; `on_select` is called when rows are ticked (see `rows_ticked`).

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
    components.download_button("Download as CSV", as_csv(rows), f"{name}.csv", key)


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


def rows_ticked(key: str) -> list[int]:
    """The places of the rows ticked in the table with this key."""
    state = st.session_state.get(key)
    return list(state["selection"]["rows"]) if state else []


def as_csv(rows: Rows) -> str:
    """Rows as CSV text, with the names of the first row's columns."""
    names = list(rows[0]) if rows else []
    return csv_text(([row.get(name, "") for name in names] for row in rows), names)


SelectionMode = Literal["points", "box", "lasso"]  # to select in a chart
_CONFIG = {"displaylogo": False, "modeBarButtonsToRemove": ["lasso2d", "select2d"]}
_CONFIG_OF_MAPS = {
    "displaylogo": False,
    "displayModeBar": True,
    "scrollZoom": True,
    "plotGlPixelRatio": 1,  # of 2, Plotly's own, a processor without a graphics card draws half as often
}

LEGEND_PIXELS, _LEGEND_ROWS = 92, 2  # the toolbar, and two rows of names beneath it
_ROW, _LINE, _LETTER, _NARROW = 19, 50, 6, 390  # pixels of a legend: a row, a line, a letter, and half a page


def show_chart(
    picture: CaptionedChart,
    key: str,
    on_select: Callable[[], None] | None = None,
    selection_modes: Sequence[SelectionMode] = ("points",),
    *,
    words: Literal["above", "below", "table"] = "above",
) -> None:
    """A chart with everything that belongs to it. `key` identifies it on the page.

    `on_select` is called when a point is clicked (see `click_position`), or an area drawn where the modes allow it (see
    `areas`). The description stands above the chart, below it, or with the table where it says no more than that.
    """
    st.markdown(f"## {plain(picture.title)}")
    if words == "above":
        st.caption(plain(picture.description))
    if grid := small_grid(picture.figure, picture.description):
        components.show_grid(grid, f"{key}_chart", on_select)
    else:
        _fit_legend(picture.figure)
        choose: dict[str, Any] = {"on_select": on_select, "selection_mode": selection_modes} if on_select else {}
        config = _CONFIG_OF_MAPS if "lasso" in selection_modes else _CONFIG
        st.plotly_chart(picture.figure, key=f"{key}_chart", config=config, alt=picture.description, **choose)
    if words == "below":
        st.caption(plain(picture.description))
    with st.expander("Data table", icon=":material/table:"):
        if words == "table":
            st.caption(plain(picture.description))
        show_table(picture.table, key=f"{key}_table", words=picture.title)


def _fit_legend(figure: go.Figure) -> None:
    """The toolbar must not stand on a legend, nor a legend of many names take the drawing's height."""
    named = [trace for trace in figure.data if trace.showlegend is not False]
    if figure.layout.showlegend is False or len(named) < 2:
        return
    longest = max(len(trace.name or "") for trace in named)
    in_a_row = max(1, _NARROW // (_LINE + _LETTER * longest))
    rows = -(-len(named) // in_a_row)
    more = _ROW * max(0, rows - _LEGEND_ROWS)
    figure.update_layout(margin_t=LEGEND_PIXELS, height=(figure.layout.height or HEIGHT) + more)


def click_position(key: str) -> tuple[int, int] | None:
    """The place (x, y) of the point that was clicked in the chart of this key; for its `on_select`, once a click.

    A second click on a point takes its selection away, and is a click on it all the same: something else may have been
    chosen since, and the point must lead back to what it stands for. None if no selection was there to take away.
    Of a small heatmap, which is a table, it is the cell.
    """
    if cell := (st.session_state.get(f"{key}_chart") or {}).get("cell"):
        return int(cell[0]), int(cell[1])
    selection = _selection(key)
    before: tuple[int, int] | None = st.session_state.pop(f"{key}_clicked", None)
    if not selection or not selection["points"]:
        return before
    point = selection["points"][0]
    position = st.session_state[f"{key}_clicked"] = int(point["x"]), int(point["y"])
    return position


def click_target(key: str) -> tuple[int, int] | None:
    """The place of the trace, and of its point, that was clicked last in the chart of this key; None for an area."""
    selection = _selection(key)
    if not selection or areas(key) or not selection["points"]:
        return None
    point = selection["points"][0]
    return int(point["curve_number"]), int(point["point_index"])


def areas(key: str) -> list[str]:
    """The areas drawn in the chart of this key, each as the numbers x y of one corner after another."""
    selection = _selection(key) or {}
    lassos = [list(zip(one["x"], one["y"], strict=True)) for one in selection.get("lasso", [])]
    boxes = [_corners(*one["x"], *one["y"]) for one in selection.get("box", [])]
    return [" ".join(f"{x:.4f} {y:.4f}" for x, y in corners) for corners in (*lassos, *boxes)]


def _corners(left: float, right: float, top: float, bottom: float) -> list[tuple[float, float]]:
    return [(left, top), (right, top), (right, bottom), (left, bottom)]


def _selection(key: str) -> Any:
    state = st.session_state.get(f"{key}_chart")
    return state.get("selection") if state else None
