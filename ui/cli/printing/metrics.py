"""Prints the curves of a job: as a table, as CSV or as JSON, now or while they grow."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Literal

from ui.cli.job_progress import REDRAW_SECONDS, card_of, exit_as
from ui.cli.output import print_json, print_note, print_table, print_text, shown
from ui.errors import BadUsageError
from ui.present.metrics_csv import HEADER, csv_rows
from ui.present.terminal import harmless_json
from workbench.analysis.training_curves import MetricTail, MetricValue, job_metrics
from workbench.registry.database import reading
from workbench.schema.job_states import STOPPED

Style = Literal["text", "csv", "json"]


def style_named(as_json: bool, as_csv: bool) -> Style:
    """How to print. Raises BadUsageError if both are given."""
    if as_json and as_csv:
        raise BadUsageError("The options --json and --csv exclude each other.", "Give one of them.")
    return "json" if as_json else "csv" if as_csv else "text"


def print_metrics(job_id: str, names: Collection[str], style: Style) -> None:
    """Prints the points that there are now."""
    with reading() as session:
        answer = job_metrics(session, job_id, names)
    if style == "json":
        print_json(answer)
    elif style == "csv":
        print_text(HEADER + csv_rows(answer.points))
    else:
        rows = [(one.metric, one.step, one.value, one.unit) for one in answer.points]
        print_table(["Metric", "Step", "Value", "Unit"], rows, empty="There are no points.")


def follow_metrics(job_id: str, names: Collection[str], style: Style) -> None:
    """Prints a line for each new point until the job has stopped, then ends as `workbench job wait` does."""
    if style == "csv":
        print_text(HEADER)
    tail, state = MetricTail(job_id, names), ""
    while state not in STOPPED:
        if state:
            time.sleep(REDRAW_SECONDS)
        with reading() as session:
            answer = tail.read(session)
        print_text("".join(map(_LINES[style], answer.points)))
        state = answer.state
    card = card_of(job_id)
    if state == "paused":
        print_note(f"{card.title} is paused. Resume it with: workbench job resume {job_id}")
    exit_as(card)


def _text_line(point: MetricValue) -> str:
    return f"step {point.step:,} · {point.metric} {shown(point.value)} {point.unit}".rstrip() + "\n"


_LINES: dict[Style, Callable[[MetricValue], str]] = {
    "text": _text_line,
    "csv": lambda point: csv_rows([point]),
    "json": lambda point: harmless_json(point.model_dump_json()) + "\n",
}
