"""Helpers for the charts of all reports, and the forest plot: every claim a row, the paper's direction to the right.

Names are user data: Plotly reads a little HTML in its labels, so every name passes through `label`.
Claims have different units, so each row of the plot is divided by the end of its interval that is farther from the
claim's border: a row ends at 1 or at -1, and crosses 0 where its interval includes the border.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import plotly.graph_objects as go

from workbench.formatting.chart_template import Better, CaptionedChart, heat_scale, new_figure
from workbench.formatting.number_format import label
from workbench.formatting.palette import COLOURS, as_text, colour_bar, logs
from workbench_studies.core.report import Claims, claim_name, format_marks, with_interval
from workbench_studies.core.verdicts import Findings, todays_mark

Rows = list[dict[str, Any]]


Drawn = tuple[go.Figure, str, Rows]  # a figure with its title and table
Chart = tuple[Callable[[Findings], Any], Callable[[Findings, Any], Drawn]]  # its data, and how they are drawn if any


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


def ratio_heatmap(table: Sequence[Sequence[float]], names: Sequence[str], titles: tuple[str, str], own: str) -> Drawn:
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
    return drawn, f"Read a column: 1.0 is {own}; {summary}", rows


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


# the forest plot ----------------------------------------------------------------------------------

FOREST = "forest"  # the name of the chart
_ROW_PIXELS, _AXIS_PIXELS = 54, 130
_LINE, _LINES = 54, 2  # characters of a line over a row, and lines: a phone shows no more
_WORDS = "#6b7280"  # readable on a light and on a dark page
_CELLS = 10  # of the text's scale, on each side of the border


@dataclass(frozen=True)
class Look:
    """The colour and symbol of a mark, in pictures and in text."""

    words: str
    colour: str  # Okabe and Ito's, which colour-blind people can tell apart
    symbol: str
    letter: str


_LOOKS: Mapping[str, Look] = {
    look.words: look
    for look in (
        Look("reproduced", "#0072B2", "circle", "●"),
        Look("weaker claim reproduced", "#009E73", "diamond", "◆"),
        Look("implied", "#CC79A7", "square-open", "◻"),
        Look("contradicted", "#D55E00", "x", "✕"),
        Look("undecided", "#8A6D00", "circle-open", "○"),
        Look("not testable here", "#8A8A8A", "line-ew-open", "–"),
    )
}


def look_of(claim: Mapping[str, Any]) -> Look:
    """How a claim's mark looks, of today or of an earlier version; of several the first one's."""
    mark = str(claim["mark"]).partition(" (")[0]
    return _LOOKS[todays_mark({**claim, "mark": mark})]


class Place(NamedTuple):
    """A claim's value and interval on the relative scale, at most 1 from the border at 0."""

    value: float
    low: float
    high: float


def place_of(claim: Mapping[str, Any]) -> Place | None:
    """Where a claim stands; None if it was not tested, or stored before the paper's direction was."""
    value, low, high, side = claim["value"], claim["low"], claim["high"], claim.get("side")
    if value is None or side is None:
        return None
    border = claim["border"]
    if side == "within":
        far = max(abs(low), abs(high))
        near = 0.0 if low <= 0 <= high else min(abs(low), abs(high))
        ends = [border - abs(value), border - far, border - near]
    else:
        sign = 1 if side == "above" else -1
        ends = [sign * (value - border), *sorted((sign * (low - border), sign * (high - border)))]
    scale = max(map(abs, ends)) or 1.0
    return Place(*(end / scale for end in ends))


def explain_forest(findings: Findings) -> str:
    """What to read in the plot, with the number of rows on each side of the border."""
    places = [place for claim in findings["claims"] if (place := place_of(claim))]
    right, left = sum(one.low > 0 for one in places), sum(one.high < 0 for one in places)
    return (
        f"Read where each line lies: to the right of the middle the paper's claim holds here, to the left its opposite "
        f"does, and a line that crosses the middle decides nothing. Of {len(places)} tested claims {right} lie right, "
        f"{left} left, {len(places) - right - left} cross. Each line is the 95 % interval, divided by its own farther "
        "end, so lines of different units can stand together; their lengths are not effects. The effects are in the "
        "table of claims."
    )


def forest(findings: Findings) -> CaptionedChart | None:
    """The plot; None if no claim was tested."""
    claims = findings["claims"]
    places = [place_of(claim) for claim in claims]
    if not any(places):
        return None
    drawn, heights = _frame(claims), range(len(claims) - 1, -1, -1)
    for look in _LOOKS.values():
        own = [row for row in zip(heights, claims, places, strict=True) if look_of(row[1]) == look]
        if own:
            _add(drawn, look, own)
    words = (
        "Forest plot: each claim a row, its 95 % interval on a relative scale, the paper's direction to the right; "
        "the mark by colour and symbol."
    )
    rows = [
        {
            "where": claim["where"],
            "claim": claim["sentence"],
            "relative": place and place.value,
            "low": place and place.low,
            "high": place and place.high,
            "mark": format_marks(claim),
        }
        for claim, place in zip(claims, places, strict=True)
    ]
    return CaptionedChart(drawn, "All claims: right of the middle the paper's claim holds here", words, rows)


def _frame(claims: Claims) -> go.Figure:
    """Axes without marks, with a claim's sentence above its row: next to it they would take half of a narrow page."""
    drawn = new_figure("", "", _AXIS_PIXELS + _ROW_PIXELS * len(claims))
    drawn.update_layout(margin={"l": 8, "r": 8, "t": 8, "b": 60}, legend={"y": 1, "x": 0})
    ends = ("← the opposite", "as in the paper →")
    ticks = {"tickvals": [-1, 0, 1], "ticktext": [ends[0], "border", ends[1]]}
    drawn.update_xaxes(range=[-1.12, 1.12], zeroline=True, zerolinewidth=2, zerolinecolor="#555", **ticks)
    drawn.update_yaxes(visible=False, range=[-0.7, len(claims) + 0.4])
    for x, anchor, words in ((-1.1, "left", ends[0]), (1.1, "right", ends[1])):
        drawn.add_annotation(x=x, y=len(claims) + 0.1, text=words, showarrow=False, xanchor=anchor)
    for number, claim in enumerate(claims, 1):
        lines = textwrap.wrap(f"{number}. {claim_name(claim)}", _LINE, max_lines=_LINES, placeholder=" …")
        drawn.add_annotation(
            x=-1.1,
            y=len(claims) - number + 0.42,
            text="<br>".join(label(line, _LINE) for line in lines),
            align="left",
            xanchor="left",
            showarrow=False,
            font={"size": 11, "color": _WORDS},
        )
    return drawn


def _add(drawn: go.Figure, look: Look, rows: Sequence[tuple[int, Mapping[str, Any], Place | None]]) -> None:
    shown = [(place or Place(0.0, 0.0, 0.0))._asdict() for *_, place in rows]
    hover = [
        (*textwrap.wrap(str(claim["sentence"]), _LINE), with_interval(claim), format_marks(claim))
        for _, claim, _ in rows
    ]
    drawn.add_scatter(
        x=[place["value"] for place in shown],
        y=[height for height, *_ in rows],
        name=f"{look.words} ({len(rows)})",
        mode="markers",
        marker={"color": look.colour, "symbol": look.symbol, "size": 11, "line": {"color": look.colour, "width": 2}},
        error_x=error_bars(shown, "value") | {"color": look.colour, "thickness": 2},
        hovertext=["<br>".join(label(line, 200) for line in lines) for lines in hover],
        hoverinfo="text",
    )


# the same as text ---------------------------------------------------------------------------------


def forest_text(claims: Claims) -> str:
    """The plot in characters, a line for each claim, the scale first so that a narrow page shows it."""
    looks = [look_of(claim) for claim in claims]
    legend = "   ".join(f"{look.letter} {look.words}" for look in _LOOKS.values() if look in looks)
    lines = [legend, "", f"{'opposite':<{_CELLS}} {'as in paper':>{_CELLS + 1}}".ljust(2 * _CELLS + 3)]
    for number, claim in enumerate(claims, 1):
        read = f", {format_marks(claim)}" if claim.get("by_evidence") else ""
        lines.append(f"{_scale(claim)} {number:>2} {claim_name(claim)}: {with_interval(claim)}{read}")
    return "\n".join(lines)


def _scale(claim: Mapping[str, Any]) -> str:
    """`·····│───●─`: the interval, with the mark at the value."""
    look, place = look_of(claim), place_of(claim)
    cells = ["·"] * _CELLS + ["│"] + ["·"] * _CELLS
    if place is None:
        return "".join([" " * _CELLS, look.letter, " " * _CELLS])
    for cell in range(_cell(place.low), _cell(place.high) + 1):
        cells[cell] = "┼" if cell == _CELLS else "─"
    cells[_cell(place.value)] = look.letter
    return "".join(cells)


def _cell(share: float) -> int:
    """The cell of a place; only the border itself is in the middle one."""
    steps = round(share * _CELLS)
    return _CELLS + (steps or (share > 0) - (share < 0))
