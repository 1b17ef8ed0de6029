"""Accuracy of each routing variant, as bars with intervals (C-BTM table 11)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ui.present.charts.chart import ACCENT, GREY, Chart, name_axis, new_figure
from ui.present.text.classification import accuracy_rows
from ui.present.text.formatting import pluralize
from workbench.formatting.number_format import percent

_LINE = 26  # pixels for each bar


def accuracy_bars(findings: Mapping[str, Any]) -> Chart:
    """The average accuracy over the tasks; bars of variants that choose no expert are grey."""
    rows = accuracy_rows(findings)
    figure = new_figure(
        "accuracy, average over the tasks (%), higher is better", "routing", height=140 + _LINE * len(rows)
    )
    places = name_axis(figure, "y", [row["answered"] for row in rows], limit=44)
    grey = {"chance", "alone", "beside", "equal"}
    figure.add_bar(
        x=[row["average (%)"] for row in rows],
        y=places,
        orientation="h",
        marker_color=[GREY if row["way"] in grey else ACCENT for row in findings["rows"]],
        error_x={"array": [row["to"] - row["average (%)"] for row in rows]},
        hovertemplate="%{x:.1f} %<extra></extra>",
    )
    figure.update_yaxes(autorange="reversed")
    best = max(rows, key=lambda row: float(row["average (%)"]))
    title = f"{best['answered']} is right most often, {percent(best['average (%)'])} on average over the tasks"
    words = (
        f"Bar chart of {len(rows)} routing variants on {pluralize(len(findings['tasks']), 'task')}. Highest accuracy: "
        f"{best['answered']} ({percent(best['average (%)'])})."
    )
    return Chart(figure, title, words, rows)
