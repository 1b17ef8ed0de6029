"""Helpers for the charts of all reports. Each chart has a title, a text alternative and a table.

Names are user data: Plotly reads a little HTML in its labels, so every name passes through `label`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import plotly.graph_objects as go

from workbench.formatting.chart_template import Better, heat_scale, new_figure
from workbench.formatting.number_format import label
from workbench.formatting.palette import COLOURS, as_text, colour_bar, logs

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Chart:
    """A figure with its title, text alternative and table."""

    figure: go.Figure
    title: str
    rows: Rows
    words: str = ""  # declared in the `report.toml` of a paper


Draw = Callable[[Mapping[str, Any]], Chart | None]  # from findings; None without data


def figure(x: str, y: str, height: int = 420, better: Better | None = None) -> go.Figure:
    """An empty figure of a report, high enough for a legend of many names."""
    return new_figure(x, y, height, better)


def colour(place: int) -> str:
    """The colour of the line at this place."""
    return COLOURS[place % len(COLOURS)]


def add_lines(drawn: go.Figure, groups: Mapping[str, Rows], x: str, y: str, *styles: Mapping[str, Any]) -> go.Figure:
    """A line for each name, with the intervals of its rows where they have one; `styles` are by place."""
    for place, (name, rows) in enumerate(groups.items()):
        style = {"mode": "lines+markers", "line": {"color": colour(place)}, **(styles[place] if styles else {})}
        bars = {"error_y": error_bars(rows, y)} if all("low" in row for row in rows) else {}
        drawn.add_scatter(x=[row[x] for row in rows], y=[row[y] for row in rows], name=label(name, 60), **bars, **style)
    return drawn


def error_bars(rows: Rows, y: str) -> dict[str, Any]:
    """The intervals of a column."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [row["high"] - row[y] for row in rows],
        "arrayminus": [row[y] - row["low"] for row in rows],
    }


def heatmap(cells: Sequence[Sequence[float]], across: Iterable[str], down: Iterable[str], *titles: str) -> go.Figure:
    """Cells with their numbers; `titles` are those of the two axes and of the scale."""
    x, y, scale = titles
    drawn = figure(x, y, height=130 + 40 * len(cells))
    drawn.add_heatmap(
        z=cells,
        x=list(map(label, across)),
        y=list(map(label, down)),
        colorscale=heat_scale(),
        texttemplate="%{z:.2f}",
        xgap=2,
        ygap=2,
        colorbar={"title": scale},
    )
    drawn.update_xaxes(type="category")  # clusters are called by numbers, which are names and no amounts
    return drawn.update_yaxes(type="category", autorange="reversed")


def ratio_heatmap(table: Sequence[Sequence[float]], names: Sequence[str], titles: tuple[str, str], own: str) -> Chart:
    """Each expert's perplexity on each text over that of the text's own: `titles` are those of texts and experts.

    It is coloured by the logarithm of its ratios (above 0), so that no column takes all colours.
    """
    drawn, cells = heatmap(table, names, names, *titles, "ratio"), [cell for row in table for cell in row]
    drawn.update_traces(
        z=logs(table),
        text=as_text(table),
        texttemplate="%{text}",
        colorbar=asdict(colour_bar(min(*cells, 1.0), max(*cells, 1.05))),
        colorscale=heat_scale(is_low_better=True),
    )
    better = sum(cell < 1 for cell in cells)
    summary = f"in {better} cells another expert is better" if better else "no other expert is better"
    rows = [
        {"expert": expert, titles[0].partition(" ")[0]: text, "ratio": ratio}
        for expert, row in zip(names, table, strict=True)
        for text, ratio in zip(names, row, strict=True)
    ]
    return Chart(drawn, f"Read a column: 1.0 is {own}; {summary}", rows)


def logarithmic(drawn: go.Figure, values: Iterable[float]) -> None:
    """Sets a logarithmic y axis with integer ticks, where Plotly would write single digits between decades."""
    low, *_, high = sorted([*values] * 2)
    if high >= _WIDE * low:
        ticks = [digit * 10.0**power for power in range(-3, 13) for digit in (1, 2, 5)]
    else:
        step = 10.0 ** math.floor(math.log10(max(high - low, low / 100)))
        ticks = [step * number for number in range(math.floor(low / step), math.ceil(high / step) + 1)]
    drawn.update_yaxes(type="log", tickvals=[tick for tick in ticks if low / 2 < tick < 2 * high], tickformat=",~r")


_WIDE = 4  # times: over less, 1, 2, 5, 10 … are too few ticks


def double(drawn: go.Figure) -> go.Figure:
    """Sets an x axis on which each tick doubles."""
    return drawn.update_xaxes(type="log", dtick=0.30103)


def group_rows(rows: Iterable[dict[str, Any]], name: str) -> dict[str, Rows]:
    """Rows by a name that is made of their columns (`{method} on {target}`), in the order in which they come."""
    groups: dict[str, Rows] = {}
    for row in rows:
        groups.setdefault(name.format_map(row), []).append(row)
    return groups
