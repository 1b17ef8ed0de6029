"""Forgetting on the other domains: during training (DEMix fig. 6) and after it (table 13)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import streamlit as st

from engine.statistics.perplexity import perplexity_of
from ui.present.charts.chart import ACCENT, Chart, baseline, line_of, name_line_ends, named, new_figure
from ui.present.charts.colours import Looks, read_looks
from ui.present.charts.curves_and_bars import PERPLEXITY
from ui.present.jobs.throughput import tokens_per_step
from ui.present.pages import TRAIN
from ui.present.text.formatting import plain, pluralize
from ui.present.text.retention import describe_forgetting, forgetting_rows
from ui.widgets.background import ask_scores
from ui.widgets.data_table import show_table
from ui.widgets.notices import empty
from ui.widgets.show_chart import show_chart
from workbench.answers.cards import ExpertCard, JobCard, MetricPoint
from workbench.formatting.number_format import change, perplexity
from workbench.formatting.palette import Look
from workbench.kinds.kind import known_kinds
from workbench.questions.forgetting import Forgetting, ForgettingRequest

_PREFIX = "dev_loss/"
_NOTICEABLE = 1.0  # per cent of perplexity


def show_forgetting(job: JobCard, points: Sequence[MetricPoint], key: str) -> None:
    """The picture of a training that watched other domains; nothing for any other job."""
    picture = forgetting_picture(points, job.spec, read_looks(job_id=job.id)) if _others(job.spec) else None
    if picture is not None:
        show_chart(picture, f"{key}_forgetting")
        if caption := _what_stays(job):
            st.caption(caption)


def _what_stays(job: JobCard) -> str:
    kind = known_kinds().get(job.kind)
    if kind is not None and kind.leaves_backbone:
        return "The backbone itself stays as it is: with its experts switched off, nothing is forgotten."
    if not job.spec.get("full_model", True):
        return "The other domains are scored with the mixture and its new expert; existing experts did not change."
    return ""


def show_forgotten(card: ExpertCard) -> None:
    """What an adapted model forgot: its perplexities next to those of the parent it was, on every common text."""
    if card.parent is None or not card.config.get("full_model"):
        st.caption(
            "Only a fully fine-tuned model can forget: the weights that this expert shares with others did not change."
        )
        return
    question = ForgettingRequest(before=card.parent, after=card.name)
    if answer := ask_scores(f"forgotten_{card.id}", question, "Reading the stored scores"):
        _show_table(card, answer)


def _show_table(card: ExpertCard, answer: Forgetting) -> None:
    rows = forgetting_rows(answer)
    if not rows:
        why = f"{card.name} and its parent {card.parent} have not been scored on the same text."
        empty(why, "Evaluate the mixtures of both.", TRAIN.script, "Evaluate")
        return
    st.markdown("##### Perplexity before and after: a change above 0 is forgetting")
    show_table(rows, f"forgotten_{card.id}", f"Perplexity per token by domain, {card.parent} and {card.name}")
    for sentence in describe_forgetting(answer):
        st.markdown(plain(sentence))


def forgetting_picture(points: Sequence[MetricPoint], spec: Mapping[str, Any], looks: Looks) -> Chart | None:
    """Perplexity over training tokens, of the targets and of the others on average; None before an evaluation."""
    learned, watched = [spec["domain"]] if "domain" in spec else list(spec["domains"]), _others(spec)
    curves = {
        name: {one.step: perplexity_of(one.value) for one in points if one.name == f"{_PREFIX}{name}"}
        for name in (*learned, *watched)
    }
    steps = sorted(set.intersection(*(set(curve) for curve in curves.values())))
    if not steps:
        return None
    per_step = tokens_per_step(spec)
    table = [_row(step, step * per_step, curves, learned) for step in steps]
    target = f"target: {learned[0]}" if len(learned) == 1 else f"average of {pluralize(len(learned), 'target')}"
    others = f"average of {pluralize(len(watched), 'watched domain')}"
    figure = new_figure("tokens trained on", PERPLEXITY, better="lower")
    look = looks.with_new(learned).domain(learned[0]) if len(learned) == 1 else Look(ACCENT)
    lines = ((target, "target", line_of(look)), (others, "average of the others", baseline()))
    for name, column, line in lines:
        values = [row[column] for row in table]
        figure.add_scatter(
            x=[row["tokens"] for row in table],
            y=values,
            **named(name),
            mode="lines+markers",
            line=line,
        )
    name_line_ends(figure, [look, Look()])
    words = f"Line chart: {_went(target, table, 'target')}; {_went(others, table, 'average of the others')}."
    return Chart(figure, _title(table), words, table)


def _others(spec: Mapping[str, Any]) -> list[str]:
    return list(spec.get("watch") or spec.get("retain") or ())


def _row(step: int, tokens: int, curves: Mapping[str, Mapping[int, float]], targets: Sequence[str]) -> dict[str, Any]:
    others = {name: curve[step] for name, curve in curves.items() if name not in targets}
    several = {name: curves[name][step] for name in targets} if len(targets) > 1 else {}
    return {
        "step": step,
        "tokens": tokens,
        "target": fmean(curves[name][step] for name in targets),
        "average of the others": fmean(others.values()),
        **{f"on {name}": value for name, value in (several | others).items()},
    }


def _title(table: Sequence[Mapping[str, Any]]) -> str:
    change = _change(table, "average of the others")
    fate = "forgotten" if change > 0 else "also read better"
    summary = "the others stay as they were" if abs(change) < _NOTICEABLE else f"the others are {fate}"
    return f"While the target was learned, {summary}: read the end of each line against its beginning"


def _went(name: str, table: Sequence[Mapping[str, Any]], column: str) -> str:
    first, last = table[0], table[-1]
    return (
        f"{name} goes from {perplexity(first[column])} per token to {perplexity(last[column])} "
        f"after {last['tokens']:,} tokens ({change(_change(table, column))})"
    )


def _change(table: Sequence[Mapping[str, Any]], column: str) -> float:
    return float(table[-1][column] / table[0][column] - 1) * 100
