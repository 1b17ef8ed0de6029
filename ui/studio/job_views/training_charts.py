"""A training in charts: losses, sample texts, forgetting (DEMix fig. 6, table 13), and gates inside an expert."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import streamlit as st

from engine.statistics.perplexity import perplexity_of
from ui.present.charts.colours import Looks, in_order, read_looks
from ui.present.charts.curves_and_bars import PERPLEXITY, curves, describe_smoothing
from ui.present.jobs.throughput import tokens_per_step
from ui.present.pages import TRAIN
from ui.present.text.formatting import listed, plain, pluralize
from ui.present.text.retention import describe_forgetting, forgetting_rows
from ui.widgets.address import choose_one
from ui.widgets.background import ask_scores
from ui.widgets.charts_and_tables import show_chart, show_table
from ui.widgets.notices import empty
from ui.widgets.on_demand import scroll_box
from workbench.analysis.training_curves import TrainingBaseline, gate_names
from workbench.answers.cards import EventCard, ExpertCard, JobCard, MetricPoint
from workbench.formatting.chart_template import (
    ACCENT,
    CaptionedChart,
    baseline,
    line_of,
    name_line_ends,
    named,
    new_figure,
    new_subplots,
)
from workbench.formatting.number_format import change, nats, perplexity, weight
from workbench.formatting.palette import Look
from workbench.kinds.kind import known_kinds
from workbench.questions.forgetting import Forgetting, ForgettingRequest
from workbench.registry.database import reading
from workbench.schema.job_states import SAMPLES

ALL_DOMAINS = "all domains"
_HELD_OUT = "Held-out loss"
_LINEAR, _LOG = "linear", "logarithmic"
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
    charts = st.container(key=f"curves_{key}")
    is_log = choose_log_steps(f"{key}.steps")  # below the charts, which are to be in the first screen
    with charts:  # one below the other where half a page is too narrow (studio.css)
        columns = st.columns(len(drawn))
    for column, (title, line) in zip(columns, drawn.items(), strict=True):
        with column:
            other = against.points if title == _HELD_OUT else ()
            picture = curves(line, title, subject, looks, other, against.name, is_log=is_log)
            if picture:
                show_chart(picture, f"{key}_{title.split()[0].lower()}", words="table")
            baseline_text = describe_baseline(against) if title == _HELD_OUT else ""
            if words := " ".join(filter(None, [describe_smoothing(line), baseline_text])):
                st.caption(plain(words))


def choose_log_steps(key: str) -> bool:
    """A control for the axis of steps; a logarithmic one has no step 0."""
    help = "A logarithmic axis shows later updates as closely as early ones. It has no step 0."
    options = [_LINEAR, _LOG]
    chosen = choose_one(
        st.segmented_control, "Axis of steps", options, default=_LINEAR, key=key, required=True, help=help
    )
    return chosen == _LOG


def describe_baseline(against: TrainingBaseline) -> str:
    """What the grey line is, or why there is none; empty where nothing was looked for."""
    if against.is_seed:
        return f"Grey: {against.name}, measured at step 0, before the first update, on the same held-out blocks."
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
    st.markdown("## What it writes as it learns")
    domains = list(dict.fromkeys(sample["domain"] for samples in by_step.values() for sample in samples))
    domain = choose_one(st.selectbox, "Domain", domains, key=f"{key}.samples") if len(domains) > 1 else domains[0]
    rows = [(step, sample) for step, samples in by_step.items() for sample in samples if sample["domain"] == domain]
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
    st.markdown("## Perplexity before and after: a change above 0 is forgetting")
    show_table(rows, f"forgotten_{card.id}", f"Perplexity per token by domain, {card.parent} and {card.name}")
    for sentence in describe_forgetting(answer):
        st.markdown(plain(sentence))


def forgetting_picture(points: Sequence[MetricPoint], spec: Mapping[str, Any], looks: Looks) -> CaptionedChart | None:
    """Perplexity over training tokens, of the targets and of the others on average; None before an evaluation."""
    learned, watched = [spec["domain"]] if "domain" in spec else list(spec["domains"]), _others(spec)
    curves = {
        name: {point.step: perplexity_of(point.value) for point in points if point.name == f"{_PREFIX}{name}"}
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
    return CaptionedChart(figure, _title(table), words, table)


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


_GATES = "gate/"
_MOST = 6  # domains that a sentence names
_MARGIN = 0.01  # of a share: smaller differences do not count
Shares = Mapping[str, Mapping[int, list[float]]]  # domain -> step -> share of the backbone and of each part


def show_gates(job: JobCard, points: Sequence[MetricPoint], key: str) -> None:
    """The picture of a training of parts; nothing for any other job."""
    looks = gate_shares(points)
    if not looks:
        return
    with reading() as session:
        names = gate_names(session, job.id)
    show_chart(gates_picture(looks, names), f"{key}_gates")
    st.caption("Means over the tokens of held-out text and over all blocks; the shares on a domain sum to 1.")


def gate_shares(points: Sequence[MetricPoint]) -> Shares:
    """What was measured of the gates, by domain and step; an evaluation that is not whole yet is left out."""
    shares: dict[str, dict[int, dict[int, float]]] = {}
    for point in points:
        if point.name.startswith(_GATES):
            number, _, domain = point.name.removeprefix(_GATES).partition("/")
            shares.setdefault(domain, {}).setdefault(point.step, {})[int(number)] = point.value
    size = max((len(look) for steps in shares.values() for look in steps.values()), default=0)
    return {
        domain: {step: [look[n] for n in range(size)] for step, look in sorted(steps.items()) if len(look) == size}
        for domain, steps in shares.items()
    }


def gates_picture(looks: Shares, names: Sequence[str]) -> CaptionedChart:
    """A band for each, one picture for each domain beneath the other, so that a part has one colour everywhere."""
    figure = new_subplots(
        len(looks),
        1,
        list(looks),
        140 + 130 * len(looks),
        shared_xaxes=True,
        vertical_spacing=0.35 / max(3, len(looks)),
    )
    colours = in_order(names[1:])
    for row, steps in enumerate(looks.values(), 1):
        for number, name in enumerate(names):
            figure.add_scatter(
                x=list(steps),
                y=[look[number] for look in steps.values()],
                **named(name, "%{y:.2f}"),
                legendgroup=str(number),
                showlegend=row == 1,
                stackgroup=str(row),
                line=line_of(colours.expert(name), 1),
                mode="lines",
                row=row,
                col=1,
            )
        figure.update_yaxes(range=[0, 1], title="share", row=row, col=1)
    figure.update_xaxes(title="step (optimizer updates)", row=len(looks), col=1)
    figure.update_layout(
        margin_t=60,
        legend={"orientation": "h", "y": 1 + 28 / (72 + 130 * len(looks)), "yanchor": "bottom"},  # above the first name
    )
    return CaptionedChart(figure, _gates_title(looks, names), _describe_gates(looks, names), _gate_rows(looks, names))


def _last(looks: Shares) -> dict[str, list[float]]:
    return {domain: list(steps.values())[-1] for domain, steps in looks.items() if steps}


def _gates_title(looks: Shares, names: Sequence[str]) -> str:
    last = _last(looks)
    at_home = [(place, name) for place, name in enumerate(names) if name in last and len(last) > 1]
    if not at_home:
        return "Gate shares: a wider band is a larger weight"
    fits = [  # parts that weigh more on their domain than on each other, by a margin that can be seen
        home
        for number, home in at_home
        if all(look[number] + _MARGIN <= last[home][number] for domain, look in last.items() if domain != home)
    ]
    if all(_spread(last, place) < _MARGIN for place, _ in at_home):
        summary = "the gates do not distinguish the domains yet"
    elif len(at_home) == 1:
        summary = f"{at_home[0][1]} has {'more' if fits else 'no more'} weight on its own domain than elsewhere"
    elif len(fits) == len(at_home):
        summary = "each part weighs most on its own domain"
    else:
        most = "weighs most on its" if len(fits) == 1 else "weigh most on their"
        summary = f"{len(fits)} of {len(at_home)} parts {most} own domain"
    return f"Gate shares: {summary}; a wider band is a larger weight"


def _spread(last: Mapping[str, Sequence[float]], number: int) -> float:
    shares = [look[number] for look in last.values()]
    return max(shares) - min(shares)


def _describe_gates(looks: Shares, names: Sequence[str]) -> str:
    shares_by_domain = [
        f"on {domain} {', '.join(f'{name} {weight(share)}' for name, share in zip(names, shares, strict=True))}"
        for domain, shares in _last(looks).items()
    ]
    steps = max((step for by_step in looks.values() for step in by_step), default=0)
    return f"Bands over the steps, for each domain. After {steps:,} steps: {listed(shares_by_domain, _MOST)}."


def _gate_rows(looks: Shares, names: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {"domain": domain, "step": step, **dict(zip(names, shares, strict=True))}
        for domain, steps in looks.items()
        for step, shares in steps.items()
    ]
