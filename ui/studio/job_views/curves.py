"""The curves of a job: losses while training and on held-out text, each with its words and its table."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from ui.present.charts.colours import read_looks
from ui.present.charts.curves_and_bars import curves
from ui.present.text.formatting import plain
from ui.widgets.show_chart import show_chart
from workbench.analysis.training_curves import TrainingBaseline
from workbench.answers.cards import MetricPoint

ALL_DOMAINS = "all domains"
_HELD_OUT = "Held-out loss"
_KINDS = {"Training loss": ("loss", "loss/"), _HELD_OUT: ("dev_loss", "dev_loss/")}


def show_curves(
    points: Sequence[MetricPoint], key: str, subject: str, job_id: str, against: TrainingBaseline | None = None
) -> None:
    """Training and held-out losses side by side, the latter against a baseline; nothing while there are no points."""
    by_title = {title: _of_kind(points, *names) for title, names in _KINDS.items()}
    drawn = {title: line for title, line in by_title.items() if line}
    if not drawn:
        return
    against = against or TrainingBaseline()
    names = sorted({point.name for line in drawn.values() for point in line} - {ALL_DOMAINS})
    looks = read_looks(job_id=job_id).with_new(names)
    with st.container(key=f"curves_{key}"):  # one below the other where half a page is too narrow (studio.css)
        columns = st.columns(len(drawn))
    for column, (title, line) in zip(columns, drawn.items(), strict=True):
        with column:
            other = against.points if title == _HELD_OUT else ()
            picture = curves(line, title, subject, looks, other, against.name)
            if picture:
                show_chart(picture, f"{key}_{title.split()[0].lower()}", words="table")
            if title == _HELD_OUT and (words := baseline_words(against)):
                st.caption(plain(words))


def baseline_words(against: TrainingBaseline) -> str:
    """What the grey line is, or why there is none; empty where nothing was looked for."""
    if against.points:
        return f"Grey: {against.name} while it was trained, on the same held-out blocks."
    return f"No baseline: {against.why_not}" if against.why_not else ""


def _of_kind(points: Sequence[MetricPoint], total: str, prefix: str) -> list[MetricPoint]:
    """The points of one kind, named by their domain alone."""
    names = {p.name: p.name.removeprefix(prefix) for p in points if p.name.startswith(prefix)}
    if len(names) != 1:  # the mean of one domain is that domain
        names[total] = ALL_DOMAINS
    return [p.model_copy(update={"name": names[p.name]}) for p in points if p.name in names]
