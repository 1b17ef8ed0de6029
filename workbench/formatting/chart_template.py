"""The one template of all Plotly charts, on pages and in reports: axes, grid, hover, baselines and names at line ends.

Names are user data: Plotly reads a little HTML in its labels, so every name passes through `label`.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from workbench.formatting.number_format import full_label, label
from workbench.formatting.palette import BASELINE_DASH, GREY, Look

HEIGHT = 272  # pixels
HEAT = ("#f3ead9", "#b5d6da", "#6aaebf", "#2b7a9b", "#12507a")  # ordered values, from worse to better
ACCENT = "#2b8aa8"  # what is read against a grey baseline, and is neither an expert nor a domain
FRAME = "#b0521c"  # around a cell that is not an expert's own
_GRID = "rgba(138, 134, 127, 0.2)"  # on both themes
_IN_LEGEND = 24  # characters of a name in a legend, which has a row for each where one is longer
_MOST_NAMES = 6  # at line ends: of more series there is a legend
_MOST_LETTERS = 18  # of a name at a line's end: on a phone the drawing must be wider than the names
_BESIDE = 0.015  # of the x axis, free at both ends: a marker on the edge would be cut in half
_ABOVE = 0.06  # of the y axis, free above and below the lines
_APART, _SIGN, _AROUND = 15, 7, 80  # pixels: between two names, of a sign of one, of all that is not the drawing
Better = Literal["lower", "higher"]


@dataclass(frozen=True)
class CaptionedChart:
    """A chart with its text: `title` says the result, `description` is the alternative text."""

    figure: go.Figure
    title: str
    description: str
    table: list[dict[str, Any]]


def new_figure(x: str, y: str, height: int = HEIGHT, better: Better | None = None) -> go.Figure:
    """An empty figure; `x` and `y` say what the axes measure with its unit, `better` which end of y is good."""
    axes = {"xaxis": _axis(x), "yaxis": _axis(f"{y}<br>{better} is better" if better else y)}
    return go.Figure(layout=_layout(height) | axes)  # at once: Plotly takes a millisecond to check each change


def new_subplots(rows: int, columns: int, titles: Sequence[str], height: int, **spacing: Any) -> go.Figure:
    """Empty figures in rows and columns, each under its title."""
    figure = make_subplots(rows, columns, subplot_titles=[label(title, 60) for title in titles], **spacing)
    figure.update_layout(_layout(height))
    figure.update_xaxes(_axis(""))
    figure.update_yaxes(_axis(""))
    return figure


def _layout(height: int) -> dict[str, Any]:
    return {
        "height": height,
        "margin": {"l": 8, "r": 8, "t": 30, "b": 8},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        "hovermode": "closest",
        "hoverlabel": {"namelength": -1},  # whole: Plotly's own limit is 15 characters
        "uirevision": "kept",  # a chart that is drawn again keeps its zoom
    }


def _axis(title: str) -> dict[str, Any]:
    lines = {"gridcolor": _GRID, "zerolinecolor": _GRID}
    return {"automargin": True, "nticks": 7, **lines, "title": {"text": title or None, "font": {"size": 12}}}


def heat_scale(*, is_low_better: bool = False) -> list[tuple[float, str]]:
    """Plotly's colour scale of ordered values: the better, the darker."""
    colours = HEAT[::-1] if is_low_better else HEAT
    return [(place / (len(colours) - 1), colour) for place, colour in enumerate(colours)]


def baseline() -> dict[str, str]:
    """The line of what a chart is read against."""
    return {"color": GREY, "dash": BASELINE_DASH}


def line_of(look: Look, width: float = 2) -> Mapping[str, Any]:
    """The line of an expert or a domain."""
    return {"color": look.colour, "dash": look.dash, "width": width}


def fill_of(looks: Sequence[Look]) -> Mapping[str, Any]:
    """The `marker` of bars, one look for each."""
    patterns = [look.pattern for look in looks]
    marker: dict[str, Any] = {"color": [look.colour for look in looks]}
    return marker | ({"pattern": {"shape": patterns}} if any(patterns) else {})


def named(name: str, says: str = "%{x}: %{y:.4g}") -> Mapping[str, str]:
    """A trace's name: short in the legend, in full where the mouse is, with what it says of a point."""
    return {
        "name": label(name, _IN_LEGEND),
        "meta": full_label(name),
        "hovertemplate": f"{says}<extra>%{{meta}}</extra>",  # not the name itself, which may hold a %{…}
    }


def tick(name: str, look: Look, limit: int = 24) -> str:
    """A name on an axis, after its colour and its mark if it has them."""
    if look.number is None:
        return label(name, limit)
    mark = f"{label(look.mark)} " if look.mark else ""
    return f'<span style="color:{look.colour}">■</span> {mark}{label(name, limit)}'


def name_line_ends(figure: go.Figure, looks: Sequence[Look]) -> None:
    """Writes the name of each line at its end, moved apart; of more than six lines the legend stays.

    A line without a place in the legend gets no name either.
    """
    lines = [line for line in figure.data if line.showlegend is not False]
    ends = [_end(line) for line in lines]
    if not 1 < len(lines) <= _MOST_NAMES or any(end is None for end in ends):
        return
    scale_x, scale_y = _scale(figure.layout.xaxis), _scale(figure.layout.yaxis)
    heights = _pixels(figure, scale_y)
    tops = _apart([heights(end[1]) for end in ends if end is not None])
    notes = []
    for line, look, end, top in zip(lines, looks, ends, tops, strict=True):
        assert end is not None
        note = {"x": scale_x(end[0]), "y": scale_y(end[1]), "yshift": top - heights(end[1])}
        name = _name_of(line)
        words = {"text": tick(name, look, _MOST_LETTERS), "hovertext": full_label(name)}
        notes.append({**note, **words, "showarrow": False, "xanchor": "left", "xshift": 6})
    starts = [scale_x(line.x[0] if line.x is not None else 0) for line in lines]
    if (first := min(starts)) < (last := max(scale_x(end[0]) for end in ends if end is not None)):
        beside = _BESIDE * (last - first)
        figure.update_xaxes(range=[first - beside, last + beside])  # else the names would make the axis longer
    longest = max(
        min(len(_name_of(line)), _MOST_LETTERS) + len(look.mark) for line, look in zip(lines, looks, strict=True)
    )
    margin = _SIGN * longest + 32
    figure.update_layout(showlegend=False, margin_r=margin, annotations=[*figure.layout.annotations, *notes])


def _scale(axis: Any) -> Callable[[Any], Any]:
    """What Plotly's ranges and annotations hold of a value on this axis."""
    return math.log10 if axis.type == "log" else lambda value: value


def _name_of(line: Any) -> str:
    """The name of a line, whole where it is known (see `named`)."""
    return html.unescape(line.meta or line.name)


def _end(line: Any) -> tuple[Any, float] | None:
    x = line.x if line.x is not None else range(len(line.y))
    points = [(at, value) for at, value in zip(x, line.y, strict=True) if value is not None]
    return points[-1] if points else None


def _pixels(figure: go.Figure, scale: Callable[[float], float]) -> Callable[[float], float]:
    """A function that gives the height of a value in the drawing, in pixels.

    The y axis is fixed at the range by which they are counted: Plotly's own is wider where lines have markers.
    """
    if not (shown := figure.layout.yaxis.range):
        values = [scale(value) for line in figure.data for value in line.y if value is not None]
        beside = _ABOVE * (max(values) - min(values) or 1.0)
        shown = (min(values) - beside, max(values) + beside)
        figure.update_yaxes(range=shown)
    low, high = shown
    return lambda value: (scale(value) - low) / (high - low) * (figure.layout.height - _AROUND)


def _apart(heights: Sequence[float]) -> list[float]:
    """The heights moved apart, in their order. Those that meet move about their middle; the others stay."""
    order = sorted(range(len(heights)), key=heights.__getitem__)
    groups: list[list[int]] = []  # from the bottom: places in `heights` whose names touch
    for index in order:
        group = [index]
        while groups and _lowest(group, heights) < _lowest(groups[-1], heights) + _APART * len(groups[-1]):
            group = groups.pop() + group
        groups.append(group)
    moved = list(heights)
    for group in groups:
        for number, index in enumerate(group):
            moved[index] = _lowest(group, heights) + _APART * number
    return moved


def _lowest(group: Sequence[int], heights: Sequence[float]) -> float:
    """The height of the lowest name of a group that stands about its middle."""
    return sum(heights[place] for place in group) / len(group) - _APART * (len(group) - 1) / 2


def name_axis(
    figure: go.Figure, axis: str, names: Sequence[str], limit: int = 24, looks: Sequence[Look] = ()
) -> list[int]:
    """Puts names at whole numbers (given back): two names cut to the same label stay two places."""
    positions = list(range(len(names)))
    update = figure.update_xaxes if axis == "x" else figure.update_yaxes
    shown = looks or [Look()] * len(names)
    update(tickvals=positions, ticktext=[tick(name, look, limit) for name, look in zip(names, shown, strict=True)])
    return positions
