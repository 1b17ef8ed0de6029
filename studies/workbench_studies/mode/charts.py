"""The charts of MoDE's report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from workbench.formatting.number_format import label
from workbench_studies.core.drawing import Chart, Drawn, Rows, add_lines, colour, figure, group_rows
from workbench_studies.core.report import join_names
from workbench_studies.core.verdicts import Findings
from workbench_studies.mode.arms import Arm
from workbench_studies.mode.report import ALL, describe_leader, on

_ACCURACY = "next-token accuracy, %"
_SYMBOLS = ("circle", "square", "diamond", "cross", "x", "triangle-up", "star", "hexagon")
# Under the axis, since at the side it would take half of a narrow page.
_BELOW = {"orientation": "h", "y": -0.25, "yanchor": "top", "x": 0}


def _methods(findings: Findings, rows: Rows) -> Drawn:
    """Learning vs. forgetting: up and to the right is better."""
    first, second, kept = (on(one) for one in (*findings["targets"], findings["retention"]))
    drawn = figure(f"mean of both targets: {_ACCURACY}", f"{label(findings['retention'])}: {_ACCURACY}", height=560)
    for row, look in zip(rows, _looks(range(len(rows)), 12), strict=True):
        mean = (row[first] + row[second]) / 2
        drawn.add_scatter(x=[mean], y=[row[kept]], name=label(row["model"]), mode="markers", marker=look["marker"])
    return drawn.update_layout(legend=_BELOW), describe_leader(findings), rows


def _parameter_rows(findings: Findings) -> Rows:
    return [row for row in _rows_with(findings, "parameters", on(findings["targets"][1])) if row["parameters added"]]


def _parameters(findings: Findings, rows: Rows) -> Drawn:
    target = findings["targets"][1]
    drawn = _lines(rows, "parameters added", on(target), "method", f"{label(target)}: {_ACCURACY}")
    drawn.update_xaxes(type="log", tickvals=_TICKS, tickformat="~s")
    best = max(rows, key=lambda row: row[on(target)])
    return drawn, f"The best on {target} is {best['model']}: {best[on(target)]:.2f} %", rows


_TICKS = [digit * 10**power for power in range(2, 13) for digit in (1, 2, 5)]  # parameters


def _sequences(findings: Findings, rows: Rows) -> Drawn:
    target = findings["targets"][1]
    drawn = _lines(rows, "sequences", on(target), "method", f"{label(target)}: {_ACCURACY}")
    _set_amounts(drawn, {row["sequences"] for row in rows}, f"training sequences of {label(target)}")
    data = {(row["method"], row["sequences"]): row[on(target)] for row in rows}
    return drawn, _who_leads(data, "MoDE", "LoRA", "training sequences"), rows


def _mixture(findings: Findings, rows: Rows) -> Drawn:
    in_table_1, amounts = [row["model"] for row in findings["tables"]["1"]], {row["sequences of each"] for row in rows}
    drawn = _lines(rows, "sequences of each", "average", "model", f"average {_ACCURACY}", in_table_1)
    _set_amounts(drawn, amounts, "mixed training sequences of each target")
    drawn.update_layout(height=520, scattermode="group", scattergap=0.7)  # side by side, or intervals hide each other
    drawn.for_each_trace(lambda line: line.update(line_dash="dot" if len(line.x) < len(amounts) else "solid"))
    data = {(row["model"], row["sequences of each"]): row["average"] for row in rows}
    title = _who_leads(data, str(Arm("frozen")), str(Arm("composed")), "mixed sequences of each target")
    return drawn, title, rows


def _rows_with(findings: Findings, table: str, *columns: str) -> Rows:
    """The rows of a table that have numbers in these columns."""
    return [row for row in findings["tables"][table] if all(row[column] is not None for column in columns)]


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
    return f"With {join_names(ahead)} {unit} {one} is above {other}, with {join_names(rest)} {lag}"


def _set_amounts(drawn: go.Figure, amounts: Iterable[str], title: str) -> None:
    """Sets the axis to the amounts of text in order, with all text last."""
    order = sorted(amounts, key=_number)
    drawn.update_xaxes(title=title, type="category", categoryorder="array", categoryarray=order)


def _number(amount: str) -> float:
    return math.inf if amount == ALL else int(amount.replace(",", ""))


def _lines(rows: Rows, x: str, y: str, name: str, y_title: str, known: Sequence[str] = ()) -> go.Figure:
    """A line for each name, with the colour and symbol of its index among the known names."""
    groups = group_rows(rows, f"{{{name}}}")
    order = list(dict.fromkeys([*known, *groups]))
    drawn = add_lines(figure(x, y_title), groups, x, y, *_looks(map(order.index, groups), 8))
    return drawn.update_layout(legend=_BELOW)


def _looks(places: Iterable[int], size: int) -> list[dict[str, Any]]:
    """A colour and a symbol for each of these places."""
    return [
        {
            "line": {"color": colour(place)},
            "marker": {"size": size, "color": colour(place), "symbol": _SYMBOLS[place % len(_SYMBOLS)]},
        }
        for place in places
    ]


CHARTS: Mapping[str, Chart] = {
    "methods": (lambda of: _rows_with(of, "1", *map(on, (*of["targets"], of["retention"]))), _methods),
    "parameters": (_parameter_rows, _parameters),
    "sequences": (lambda of: _rows_with(of, "sequences", on(of["targets"][1])), _sequences),
    "mixture": (lambda of: _rows_with(of, "mixture", "average"), _mixture),
}
