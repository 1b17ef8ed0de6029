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
from workbench.formatting.palette import as_text, colour_bar, logs

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


def heatmap(cells: Sequence[Sequence[float]], across: Iterable[str], down: Iterable[str], *titles: str) -> go.Figure:
    """Cells with their numbers; `titles` are those of the two axes and of the scale."""
    x, y, scale = titles
    drawn = figure(x, y, height=130 + 40 * len(cells))
    drawn.add_heatmap(
        z=cells,
        x=[label(one) for one in across],
        y=[label(one) for one in down],
        colorscale=heat_scale(),
        texttemplate="%{z:.2f}",
        xgap=2,
        ygap=2,
        colorbar={"title": scale},
    )
    drawn.update_yaxes(autorange="reversed")
    return drawn


def ratio_heatmap(table: Sequence[Sequence[float]], names: Sequence[str], titles: tuple[str, str], own: str) -> Chart:
    """Each expert's perplexity on each text over that of the text's own: `titles` are those of texts and experts.

    It is coloured by the logarithm of its ratios (above 0), so that no column takes all colours.
    """
    drawn = heatmap(table, names, names, *titles, "ratio")
    low, high = (edge(cell for row in table for cell in row) for edge in (min, max))
    scale = colour_bar(min(low, 1.0), max(high, 1.05))
    drawn.update_traces(
        z=logs(table),
        text=as_text(table),
        texttemplate="%{text}",
        colorbar=asdict(scale),
        colorscale=heat_scale(is_low_better=True),
    )
    better = sum(cell < 1 for row in table for cell in row)
    summary = f"in {better} cells another expert is better" if better else "no other expert is better"
    rows = [
        {"expert": one, titles[0].partition(" ")[0]: other, "ratio": table[i][j]}
        for i, one in enumerate(names)
        for j, other in enumerate(names)
    ]
    return Chart(drawn, f"Read a column: 1.0 is {own}; {summary}", rows)


def logarithmic(drawn: go.Figure, values: Iterable[float]) -> None:
    """Sets a logarithmic y axis with integer ticks, where Plotly would write single digits between decades."""
    groups = sorted(values)
    low, high = groups[0], groups[-1]
    if high >= _WIDE * low:
        ticks = [digit * 10.0**power for power in range(-3, 13) for digit in (1, 2, 5)]
    else:
        step = 10.0 ** math.floor(math.log10(max(high - low, low / 100)))
        ticks = [step * number for number in range(math.floor(low / step), math.ceil(high / step) + 1)]
    drawn.update_yaxes(type="log", tickvals=[one for one in ticks if low / 2 < one < 2 * high], tickformat=",~r")


_WIDE = 4  # times: over less, 1, 2, 5, 10 … are too few ticks


def add_line(drawn: go.Figure, line: Rows, name: str, style: Mapping[str, Any]) -> None:
    """Perplexity over tokens."""
    drawn.add_scatter(
        x=[row["tokens"] for row in line],
        y=[row["perplexity"] for row in line],
        name=label(name, 60),
        mode="lines",
        line=dict(style),
    )


def double(drawn: go.Figure) -> go.Figure:
    """Sets an x axis on which each tick doubles."""
    return drawn.update_xaxes(type="log", dtick=0.30103)


def error_bars(rows: Rows, y: str) -> dict[str, Any]:
    """The intervals of a column."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [row["high"] - row[y] for row in rows],
        "arrayminus": [row[y] - row["low"] for row in rows],
    }


def add_interval_line(drawn: go.Figure, line: Rows, x: str, name: str, colour: str) -> None:
    """Our numbers by a column, with their intervals."""
    drawn.add_scatter(
        x=[row[x] for row in line],
        y=[row["ours"] for row in line],
        name=name,
        mode="lines+markers",
        line={"color": colour},
        error_y=error_bars(line, "ours"),
    )


def grouped(rows: Rows, names: Sequence[str]) -> dict[tuple[Any, ...], Rows]:
    """Rows by their values in these columns, in the order in which they come."""
    groups: dict[tuple[Any, ...], Rows] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


def lines(rows: Rows, name: str) -> list[tuple[str, int, Rows]]:
    """The rows of each value in a column, seed by seed."""
    return [(key[0], key[1], line) for key, line in grouped(rows, (name, "seed")).items()]
