"""Heatmaps: coloured cells with their numbers, between named rows and columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from workbench.formatting.chart_template import FRAME, heat_scale, name_axis, new_figure, tick
from workbench.formatting.number_format import shorten
from workbench.formatting.palette import Look

_NUMBERED = 150  # cells with their numbers in them at most
_ROW, _SIGN, _REST = 34, 7, 150  # pixels: of a row, of a sign of a name that stands upright, of all else
_ABOVE = 84  # pixels over the cells: the toolbar, and the colour bar beneath it
_COLUMN_SIGNS, _ROW_SIGNS = 20, 18  # of a name, of a line of a name


def new_heatmap(
    x: str,
    y: str,
    columns: Sequence[str],
    rows: Sequence[str],
    *,
    numbers: str,
    colorbar: Mapping[str, Any],
    looks: tuple[Sequence[Look], Sequence[Look]] = ((), ()),
    **cells: Any,
) -> go.Figure:
    """A heatmap whose first row is on top. `numbers` is Plotly's template of what stands in a cell, `cells` all else.

    `looks` are those of the columns and of the rows, if they are experts or domains.

    Names of rows have two short lines, and the colour bar lies above: on the screen of a phone most is left to cells.
    """
    upright = max((min(len(name), _COLUMN_SIGNS) for name in columns), default=0)
    figure = new_figure(x, y, height=_REST + _ROW * len(rows) + _SIGN * upright)
    figure.add_heatmap(
        x=list(range(len(columns))),
        y=list(range(len(rows))),
        xgap=2,
        ygap=2,
        colorscale=heat_scale(),
        texttemplate=numbers if len(rows) * len(columns) <= _NUMBERED else None,
        colorbar={"orientation": "h", "y": 1, "yanchor": "bottom", "thickness": 10, **colorbar},
    )
    figure.update_traces(cells)
    name_axis(figure, "x", columns, _COLUMN_SIGNS, looks[0])
    figure.update_xaxes(showgrid=False, zeroline=False, ticklabeloverflow="allow")
    figure.update_yaxes(
        tickvals=list(range(len(rows))),
        ticktext=list(map(_in_lines, rows, looks[1] or [Look()] * len(rows))),
        showgrid=False,
        zeroline=False,
        autorange="reversed",
    )
    figure.update_layout(margin_t=_ABOVE)
    return figure


def _in_lines(name: str, look: Look) -> str:
    short = shorten(name, 2 * _ROW_SIGNS - 2)
    first, *rest = textwrap.wrap(short, _ROW_SIGNS, max_lines=2, placeholder="…", break_on_hyphens=False) or [name]
    return "<br>".join([tick(first, look), *(tick(line, Look()) for line in rest)])


def add_targets(figure: go.Figure, hover: Sequence[Sequence[str]]) -> None:
    """Lets each cell be clicked, and say its words of `hover`, by an invisible point in its middle.

    Plotly cannot select the cells of a heatmap. A click anywhere in a cell takes the nearest point.
    """
    cells = [(x, y, words) for y, row in enumerate(hover) for x, words in enumerate(row)]
    figure.update_traces(hoverinfo="skip", selector={"type": "heatmap"})
    figure.add_scatter(
        x=[x for x, _, _ in cells],
        y=[y for _, y, _ in cells],
        mode="markers",
        marker={"symbol": "square", "size": 1, "opacity": 0},
        selected={"marker": {"opacity": 0}},
        unselected={"marker": {"opacity": 0}},
        customdata=[words for _, _, words in cells],
        hovertemplate="%{customdata}<extra></extra>",
        showlegend=False,
    )
    figure.update_layout(hoverdistance=-1)


def in_order_of_homes(domains: Sequence[str], homes: Iterable[str]) -> list[str]:
    """The domains in the order of the experts that are at home in them; then the others, as they come."""
    return [*dict.fromkeys([*(home for home in homes if home in domains), *domains])]


def frame(row: int, column: int, dash: str = "solid", colour: str = FRAME) -> dict[str, Any]:
    """A frame around a cell, in the colour of its expert if it is an expert's own."""
    box = {"x0": column - 0.47, "x1": column + 0.47, "y0": row - 0.47, "y1": row + 0.47}
    return {"type": "rect", "line": {"color": colour, "width": 3, "dash": dash}, **box}


def add_frames(figure: go.Figure, *frames: dict[str, Any]) -> None:
    """Draws frames all at once: for each change Plotly checks those that are there again."""
    figure.update_layout(shapes=[*figure.layout.shapes, *frames])
