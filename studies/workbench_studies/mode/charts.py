"""The charts of MoDE's report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import plotly.graph_objects as go

from workbench.formatting.number_format import label
from workbench.formatting.palette import COLOURS
from workbench_studies.core.drawing import Chart, Draw, Rows, figure, grouped
from workbench_studies.core.findings import Findings
from workbench_studies.mode.names import Arm
from workbench_studies.mode.report import leader_words
from workbench_studies.mode.tables import ALL, on

_ACCURACY = "next-token accuracy, %"
_SYMBOLS = ("circle", "square", "diamond", "cross", "x", "triangle-up", "star", "hexagon")
# Under the axis, since at the side it would take half of a narrow page.
_BELOW = {"orientation": "h", "y": -0.25, "yanchor": "top", "x": 0}


def _methods(findings: Findings) -> Chart | None:
    """Learning vs. forgetting: up and to the right is better."""
    first, second, kept = (on(one) for one in (*findings["targets"], findings["retention"]))
    rows = [row for row in findings["tables"]["1"] if None not in (row[first], row[second], row[kept])]
    if not rows:
        return None
    drawn = figure(f"mean of both targets: {_ACCURACY}", f"{label(findings['retention'])}: {_ACCURACY}", height=560)
    for place, row in enumerate(rows):
        marker = {"size": 12, "color": _colour(place), "symbol": _SYMBOLS[place % len(_SYMBOLS)]}
        drawn.add_scatter(
            x=[(row[first] + row[second]) / 2], y=[row[kept]], name=label(row["model"]), mode="markers", marker=marker
        )
    drawn.update_layout(legend=_BELOW)
    return Chart(drawn, leader_words(findings), rows)


def _parameters(findings: Findings) -> Chart | None:
    second = on(findings["targets"][1])
    rows = [row for row in findings["tables"]["parameters"] if row[second] is not None and row["parameters added"]]
    if not rows:
        return None
    drawn = _lines(rows, "parameters added", second, "method")
    drawn.update_xaxes(type="log", tickvals=_TICKS, tickformat="~s")
    drawn.update_yaxes(title=f"{label(findings['targets'][1])}: {_ACCURACY}")
    best = max(rows, key=lambda row: row[second])
    title = f"The best on {findings['targets'][1]} is {best['model']}: {best[second]:.2f} %"
    return Chart(drawn, title, rows)


_TICKS = [digit * 10**power for power in range(2, 13) for digit in (1, 2, 5)]  # parameters


def _sequences(findings: Findings) -> Chart | None:
    second = on(findings["targets"][1])
    rows = [row for row in findings["tables"]["sequences"] if row[second] is not None]
    if not rows:
        return None
    drawn = _lines(rows, "sequences", second, "method")
    _set_amounts(drawn, (row["sequences"] for row in rows), f"training sequences of {label(findings['targets'][1])}")
    drawn.update_yaxes(title=f"{label(findings['targets'][1])}: {_ACCURACY}")
    data = {(row["method"], row["sequences"]): row[second] for row in rows}
    return Chart(drawn, _who_leads(data, "MoDE", "LoRA", "training sequences"), rows)


def _mixture(findings: Findings) -> Chart | None:
    rows = [row for row in findings["tables"]["mixture"] if row["average"] is not None]
    if not rows:
        return None
    in_table_1, amounts = [row["model"] for row in findings["tables"]["1"]], {row["sequences of each"] for row in rows}
    drawn = _lines(rows, "sequences of each", "average", "model", in_table_1)
    _set_amounts(drawn, amounts, "mixed training sequences of each target")
    drawn.update_yaxes(title=f"average {_ACCURACY}")
    drawn.update_layout(height=520, scattermode="group", scattergap=0.7)  # side by side, or intervals hide each other
    drawn.for_each_trace(lambda line: line.update(line_dash="dot" if len(line.x) < len(amounts) else "solid"))
    data = {(row["model"], row["sequences of each"]): row["average"] for row in rows}
    title = _who_leads(data, str(Arm("frozen")), str(Arm("composed")), "mixed sequences of each target")
    return Chart(drawn, title, rows)


def _who_leads(data: Mapping[tuple[str, str], float], one: str, other: str, unit: str) -> str:
    """On which amounts of text that both have one method has more than another; `data` is by method and amount."""
    both = sorted((amount for name, amount in data if name == one and (other, amount) in data), key=_number)
    ahead = [amount for amount in both if data[one, amount] > data[other, amount]]
    rest = [amount for amount in both if amount not in ahead]
    is_level = any(data[one, amount] == data[other, amount] for amount in rest)
    lag, each = ("not above", "any") if is_level else ("below", "every")
    if not both:
        return f"Accuracy by the number of {unit}"
    if not rest:
        return f"{one} is above {other} with every number of {unit}"
    if not ahead:
        return f"{one} is {lag} {other} with {each} number of {unit}"
    return f"With {_listed(ahead)} {unit} {one} is above {other}, with {_listed(rest)} {lag}"


def _listed(amounts: list[str]) -> str:
    *most, last = amounts
    return f"{', '.join(most)} and {last}" if most else last


def _set_amounts(drawn: go.Figure, amounts: Iterable[str], title: str) -> None:
    """Sets the axis to the amounts of text in order, with all text last."""
    order = sorted(set(amounts), key=_number)
    drawn.update_xaxes(title=title, type="category", categoryorder="array", categoryarray=order)


def _number(amount: str) -> float:
    return math.inf if amount == ALL else int(amount.replace(",", ""))


def _lines(rows: Rows, x: str, y: str, name: str, known: Sequence[str] = ()) -> go.Figure:
    """A line for each name, with the colour and symbol of its index among the known names."""
    drawn, of_name = figure(x, _ACCURACY), grouped(rows, (name,))
    order = list(dict.fromkeys([*known, *(of for (of,) in of_name)]))
    for (of,), line in of_name.items():
        place = order.index(of)
        drawn.add_scatter(
            x=[row[x] for row in line],
            y=[row[y] for row in line],
            name=label(of),
            mode="lines+markers",
            line={"color": _colour(place)},
            marker={"size": 8, "symbol": _SYMBOLS[place % len(_SYMBOLS)]},
            error_y={
                "type": "data",
                "array": [row["high"] - row[y] for row in line],
                "arrayminus": [row[y] - row["low"] for row in line],
            },
        )
    return drawn.update_layout(legend=_BELOW)


def _colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]


CHARTS: Mapping[str, Draw] = {
    "methods": _methods,
    "parameters": _parameters,
    "sequences": _sequences,
    "mixture": _mixture,
}
