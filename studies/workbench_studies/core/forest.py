"""The forest plot of a report: every claim a row, on one relative scale, the paper's direction to the right.

Claims have different units, so each row is divided by the end of its interval that is farther from the claim's border:
a row ends at 1 or at -1, and crosses 0 where its interval includes the border.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import plotly.graph_objects as go

from workbench.formatting.chart_template import new_figure
from workbench.formatting.number_format import label
from workbench_studies.core.drawing import Chart, error_bars
from workbench_studies.core.findings import Findings
from workbench_studies.core.report import Claims, claim_name, format_marks, with_interval
from workbench_studies.core.verdicts import todays_mark

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

MARKS_IN_ORDER = tuple(_LOOKS)


def look_of(claim: Mapping[str, Any]) -> Look:
    """How a claim's mark looks, of today or of an earlier version; of several the first one's."""
    mark = str(claim["mark"]).partition(" (")[0]
    return _LOOKS[todays_mark({**claim, "mark": mark})]


@dataclass(frozen=True)
class Place:
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


def forest(findings: Findings) -> Chart | None:
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
    return Chart(drawn, "All claims: right of the middle the paper's claim holds here", rows, words)


def _frame(claims: Claims) -> go.Figure:
    """Axes without marks, with a claim's words over its row: next to it they would take half of a narrow page."""
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
    shown = [asdict(place or Place(0.0, 0.0, 0.0)) for *_, place in rows]
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
