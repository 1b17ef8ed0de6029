"""The charts of MoDE's report."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import plotly.graph_objects as go

from workbench.palette import COLOURS
from workbench.replications.drawing import Chart, Rows, figure, grouped, label
from workbench.replications.findings import Findings
from workbench.replications.mode.evidence import on
from workbench.replications.mode.report import best_words

_ACCURACY = "next-token accuracy, %"


def charts(findings: Findings) -> dict[str, Chart]:
    """Every chart that there are numbers for, by its name."""
    drawn = {name: draw(findings) for name, draw in _CHARTS.items()}
    return {name: chart for name, chart in drawn.items() if chart is not None}


def _methods(findings: Findings) -> Chart | None:
    """What is learnt against what is kept: up and to the right is better."""
    first, second, kept = (on(one) for one in (*findings["targets"], findings["retention"]))
    rows = [row for row in findings["tables"]["1"] if None not in (row[first], row[second], row[kept])]
    if not rows:
        return None
    drawn = figure(f"mean of both targets: {_ACCURACY}", f"{label(findings['retention'])}: {_ACCURACY}", height=480)
    for place, row in enumerate(rows):
        drawn.add_scatter(
            x=[(row[first] + row[second]) / 2], y=[row[kept]], name=label(row["model"]), mode="markers+text",
            text=[label(row["model"])], textposition="top center", cliponaxis=False,
            marker={"size": 12, "color": COLOURS[place % len(COLOURS)]},
        )  # fmt: skip
    drawn.update_layout(showlegend=False)
    words = "Scatter plot: each method by its accuracy on the targets (across) and on what is retained (up); up and to "
    words += "the right is better."
    return Chart(drawn, best_words(findings), words, rows)


def _parameters(findings: Findings) -> Chart | None:
    second = on(findings["targets"][1])
    rows = [row for row in findings["tables"]["parameters"] if row[second] is not None and row["parameters added"]]
    if not rows:
        return None
    drawn = _lines(rows, "parameters added", second, "method")
    drawn.update_xaxes(type="log")
    best = max(rows, key=lambda row: row[second])
    title = f"The best on {findings['targets'][1]} is {best['model']}: {best[second]:.2f} %"
    words = "Line chart: accuracy on the second target by the parameters that were added, for LoRA by rank and for "
    words += "MoDE by layers, with 95 % intervals; higher is better."
    return Chart(drawn, title, words, rows)


def _sequences(findings: Findings) -> Chart | None:
    second = on(findings["targets"][1])
    rows = [row for row in findings["tables"]["sequences"] if row[second] is not None]
    if not rows:
        return None
    drawn = _lines(rows, "sequences", second, "method")
    drawn.update_xaxes(type="category")
    words = "Line chart: accuracy on the second target by the number of training sequences at as many updates, for "
    words += "LoRA and MoDE, with 95 % intervals; higher is better."
    return Chart(drawn, _who_leads(rows, second), words, rows)


def _who_leads(rows: Rows, column: str) -> str:
    of = {(row["method"], row["sequences"]): row[column] for row in rows}
    amounts = [amount for method, amount in of if method == "MoDE" and ("LoRA", amount) in of]
    ahead = [amount for amount in amounts if of["MoDE", amount] > of["LoRA", amount]]
    if not ahead:
        return "LoRA is above MoDE on every amount of text"
    return f"MoDE is above LoRA on {', '.join(ahead)} sequences, of {', '.join(amounts)}"


def _mixture(findings: Findings) -> Chart | None:
    rows = [row for row in findings["tables"]["mixture"] if row["average"] is not None]
    if not rows:
        return None
    drawn = _lines(rows, "sequences of each", "average", "model")
    drawn.update_xaxes(type="category")
    title = "How much mixed text frozen experts need, and how much trained ones: read from left to right"
    words = "Line chart: accuracy, averaged over both targets and what is retained, by the number of mixed training "
    words += "sequences, one line for each method, with 95 % intervals; higher is better."
    return Chart(drawn, title, words, rows)


def _lines(rows: Rows, x: str, y: str, name: str) -> go.Figure:
    drawn = figure(x, _ACCURACY)
    for place, ((of,), line) in enumerate(grouped(rows, (name,)).items()):
        drawn.add_scatter(
            x=[row[x] for row in line], y=[row[y] for row in line], name=label(of), mode="lines+markers",
            line={"color": COLOURS[place % len(COLOURS)]},
            error_y={
                "type": "data", "array": [row["high"] - row[y] for row in line],
                "arrayminus": [row[y] - row["low"] for row in line],
            },
        )  # fmt: skip
    return drawn


_CHARTS: Mapping[str, Callable[[Findings], Chart | None]] = {
    "methods": _methods, "parameters": _parameters, "sequences": _sequences, "mixture": _mixture,
}  # fmt: skip
