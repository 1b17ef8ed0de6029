"""The base of all charts: a figure, a title that says what to read, a text alternative and a table.

Names are user data: Plotly reads a little HTML in its labels, so every name passes through `label`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from workbench.chart_label import label
from workbench.palette import COLOURS

MARK = "#D55E00"
GREY = "#8A8A8A"


@dataclass(frozen=True)
class Chart:
    """A chart with its text: `title` says what to read, `words` is the alternative text."""

    figure: go.Figure
    title: str
    words: str
    table: list[dict[str, Any]]


def colour_of(index: int) -> str:
    """The colour of the expert with this index; the same in every chart."""
    return COLOURS[index % len(COLOURS)]


def new_figure(x: str, y: str, height: int = 340) -> go.Figure:
    """An empty figure whose axes say what they measure."""
    figure = go.Figure()
    figure.update_layout(
        height=height,
        margin={"l": 8, "r": 8, "t": 30, "b": 8},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"},
    )
    figure.update_xaxes(title=x, automargin=True)
    figure.update_yaxes(title=y, automargin=True)
    return figure


def name_axis(figure: go.Figure, axis: str, names: Sequence[str], limit: int = 24) -> list[int]:
    """Puts names at whole numbers (given back): two names cut to the same label stay two places."""
    places = list(range(len(names)))
    update = figure.update_xaxes if axis == "x" else figure.update_yaxes
    update(tickvals=places, ticktext=[label(name, limit) for name in names])
    return places
