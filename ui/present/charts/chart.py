"""What all charts of pages share: the template, a title that says the result, a text alternative and a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from workbench.formatting.chart_template import ACCENT as ACCENT
from workbench.formatting.chart_template import FRAME as FRAME
from workbench.formatting.chart_template import HEIGHT as HEIGHT
from workbench.formatting.chart_template import baseline as baseline
from workbench.formatting.chart_template import fill_of as fill_of
from workbench.formatting.chart_template import heat_scale as heat_scale
from workbench.formatting.chart_template import line_of as line_of
from workbench.formatting.chart_template import name_line_ends as name_line_ends
from workbench.formatting.chart_template import named as named
from workbench.formatting.chart_template import new_figure as new_figure
from workbench.formatting.chart_template import new_subplots as new_subplots
from workbench.formatting.chart_template import tick as tick
from workbench.formatting.palette import GREY as GREY
from workbench.formatting.palette import Look


@dataclass(frozen=True)
class Chart:
    """A chart with its text: `title` says the result, `words` is the alternative text."""

    figure: go.Figure
    title: str
    words: str
    table: list[dict[str, Any]]


def name_axis(
    figure: go.Figure, axis: str, names: Sequence[str], limit: int = 24, looks: Sequence[Look] = ()
) -> list[int]:
    """Puts names at whole numbers (given back): two names cut to the same label stay two places."""
    places = list(range(len(names)))
    update = figure.update_xaxes if axis == "x" else figure.update_yaxes
    shown = looks or [Look()] * len(names)
    update(tickvals=places, ticktext=[tick(name, look, limit) for name, look in zip(names, shown, strict=True)])
    return places
