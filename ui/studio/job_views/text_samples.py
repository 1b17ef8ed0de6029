"""The texts that a model wrote while it was trained: one domain's at every step, the newest first."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import streamlit as st

from ui.present.text.formatting import plain
from ui.widgets.address import choose_one
from ui.widgets.scroll_box import scroll_box
from workbench.answers.cards import EventCard, JobCard, MetricPoint
from workbench.formatting.number_format import nats
from workbench.schema.job_states import SAMPLES

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
