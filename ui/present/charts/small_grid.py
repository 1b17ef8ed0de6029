"""A small heatmap as data for a table of coloured cells, which a page draws without Plotly's script of 5 MB."""

from __future__ import annotations

import html
import re
from typing import Any

import plotly.graph_objects as go
from plotly.colors import convert_colors_to_same_type, sample_colorscale

_MOST = 12  # rows, and columns
_DASHES = {"solid": "solid", "dot": "dotted"}


def small_grid(figure: go.Figure, label: str) -> dict[str, Any] | None:
    """What `heat_grid.js` draws of a heatmap (`heatmap.new_heatmap`); None where it is larger, and for other charts."""
    names = figure.layout.meta or {}
    if "rows" not in names or max(map(len, names.values())) > _MOST:
        return None
    heat, *targets = figure.data
    width = len(names["columns"])
    places = [(row, column) for row in range(len(names["rows"])) for column in range(width)]
    known = [value for row in heat.z for value in row if value is not None] or [0.0]
    low = min(known) if heat.zmin is None else heat.zmin
    high = max(known) if heat.zmax is None else heat.zmax
    hover = [text for trace in targets for text in trace.customdata]
    frames = {
        (round(shape.y0 + 0.47), round(shape.x0 + 0.47)): (
            f"3px {_DASHES.get(shape.line.dash, 'dashed')} {shape.line.color}"
        )
        for shape in figure.layout.shapes
    }

    def cell(row: int, column: int) -> dict[str, str]:
        fields = {name: None if heat[name] is None else heat[name][row][column] for name in ("z", "text", "customdata")}
        words = hover[row * width + column] if hover else _filled(heat.hovertemplate or "", fields)
        return {
            "text": _filled(heat.texttemplate or "", fields),
            "says": html.unescape(words.replace("<extra></extra>", "").replace("<br>", "\n")),
            "frame": frames.get((row, column), ""),
            **_colours(heat.colorscale, fields["z"], low, high),
        }

    cells = [cell(*place) for place in places]
    return {
        "label": label,
        "x": figure.layout.xaxis.title.text,
        "y": figure.layout.yaxis.title.text,
        "number": heat.colorbar.title.text,
        **names,
        "cells": [cells[start : start + width] for start in range(0, len(cells), width)],
    }


def _filled(template: str, fields: dict[str, Any]) -> str:
    """A template of Plotly's, such as `%{z:.1f} per token`, for one cell; empty where the cell has no number."""
    if fields["z"] is None:
        return ""
    return re.sub(r"%\{(\w+)(?::([^}]*))?\}", lambda field: format(fields[field[1]], field[2] or ""), template)


def _colours(scale: Any, value: float | None, low: float, high: float) -> dict[str, str]:
    """The colour of a number, and black or white for the letters on it."""
    if value is None:
        return {"fill": "", "letters": ""}
    ends, _ = convert_colors_to_same_type([colour for _, colour in scale], "rgb")
    [fill] = sample_colorscale(ends, [min(1.0, max(0.0, (value - low) / ((high - low) or 1.0)))])
    red, green, blue = map(float, re.findall(r"[\d.]+", fill))
    return {"fill": fill, "letters": "#000000" if 0.299 * red + 0.587 * green + 0.114 * blue > 128 else "#ffffff"}
