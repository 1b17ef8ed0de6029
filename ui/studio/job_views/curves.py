"""The curves of a job, each with its description and its table, and the texts that a model wrote meanwhile."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import streamlit as st

from ui.present.charts.colours import read_looks
from ui.present.charts.curves_and_bars import curves
from ui.present.text.formatting import plain
from ui.widgets.address import choose_one
from ui.widgets.on_demand import scroll_box
from ui.widgets.show_chart import show_chart
from workbench.analysis.training_curves import TrainingBaseline
from workbench.answers.cards import EventCard, JobCard, MetricPoint
from workbench.formatting.number_format import nats
from workbench.schema.job_states import SAMPLES

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
            if title == _HELD_OUT and (words := describe_baseline(against)):
                st.caption(plain(words))


def describe_baseline(against: TrainingBaseline) -> str:
    """What the grey line is, or why there is none; empty where nothing was looked for."""
    if against.points:
        return f"Grey: {against.name} while it was trained, on the same held-out blocks."
    return f"No baseline: {against.why_not}" if against.why_not else ""


def _of_kind(points: Sequence[MetricPoint], total: str, prefix: str) -> list[MetricPoint]:
    """The points of one kind, named by their domain only."""
    names = {p.name: p.name.removeprefix(prefix) for p in points if p.name.startswith(prefix)}
    if len(names) != 1:  # the mean of one domain is that domain
        names[total] = ALL_DOMAINS
    return [p.model_copy(update={"name": names[p.name]}) for p in points if p.name in names]


_HEIGHT = 360  # pixels of the list at most
_STYLE = "white-space:pre-wrap;overflow-wrap:anywhere;margin:0 0 .8rem"


def show_samples(job: JobCard, happened: Sequence[EventCard], points: Sequence[MetricPoint], key: str) -> None:
    """The list by step; for a training without samples why it has none, and nothing for any other job."""
    by_step = samples_by_step(happened)
    if not by_step:
        if why := _why_none(job, points):
            st.caption(plain(why))
        return
    st.markdown("##### What it writes as it learns")
    domains = list(dict.fromkeys(one["domain"] for samples in by_step.values() for one in samples))
    domain = choose_one(st.selectbox, "Domain", domains, key=f"{key}.samples") if len(domains) > 1 else domains[0]
    rows = [(step, one) for step, samples in by_step.items() for one in samples if one["domain"] == domain]
    st.caption("The same beginning from held-out text at every step, sampled at temperature 0.7; no text is chosen.")
    st.text(f"{rows[0][1]['prompt']} …")
    losses = {point.step: point.value for point in points if point.name == f"dev_loss/{domain}"}
    samples = "".join(_sample(step, one["text"], losses.get(step)) for step, one in rows)
    with st.container(border=True):
        scroll_box(samples, f"Texts by step, {domain}", _HEIGHT)


def samples_by_step(happened: Sequence[EventCard]) -> dict[int, list[dict[str, Any]]]:
    """The samples of each step, the last step first; of a step that was repeated those of the last time."""
    stored = {event.data["step"]: event.data["samples"] for event in happened if event.kind == SAMPLES and event.data}
    return dict(sorted(stored.items(), reverse=True))


def _sample(step: int, text: str, loss: float | None) -> str:
    after = "" if loss is None else f" · held-out loss {nats(loss)}"
    words = html.escape(text) if text.strip() else "<em>nothing: the document ended</em>"
    return f'<div style="{_STYLE}"><strong>Step {step:,}</strong>{after}\n… {words}</div>'


def _why_none(job: JobCard, points: Sequence[MetricPoint]) -> str:
    training = job.spec.get("training") or {}
    if not any(point.name.startswith("dev_loss/") for point in points):
        return ""
    if training.get("sample_tokens") == 0:
        return "No sample texts: sample tokens are 0 in its spec."
    return "No sample texts: a training in several processes writes none, nor did earlier versions."
