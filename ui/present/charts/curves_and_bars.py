"""Training curves, and bars: perplexities of experts, removals, the oracle gap, accuracies of routings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from ui.present.charts.colours import Looks, with_mark
from ui.present.text.formatting import listed, pluralize
from ui.present.text.inference_modes import ORACLE
from ui.present.text.measures import comparable, measure_text
from ui.present.text.reports import LABELS, accuracy_rows, perplexity_rows
from ui.present.text.reports import change as removal_change
from workbench.answers.cards import EvaluationCard, ExpertCard, MetricPoint
from workbench.formatting.chart_template import (
    ACCENT,
    CaptionedChart,
    baseline,
    line_of,
    name_axis,
    name_line_ends,
    named,
    new_figure,
)
from workbench.formatting.number_format import change, nats, percent, perplexity
from workbench.formatting.palette import GREY, Look
from workbench.questions.inference_modes import InferenceMode, InferenceModeDomain
from workbench.questions.removal import DomainRemoval

PERPLEXITY = "perplexity per token"


def curves(
    points: Sequence[MetricPoint],
    kind: str,
    subject: str,
    looks: Looks,
    against: Sequence[MetricPoint] = (),
    against_name: str = "",
) -> CaptionedChart | None:
    """A kind of loss over the steps, one line per metric; None when there is nothing to draw yet.

    Names that `looks` does not know are drawn in grey. `against` are the same losses of another training, the baseline.
    """
    lines, baselines = _by_name(points), _baselines(against, against_name)
    if not lines:
        return None
    figure = new_figure("step (optimizer updates)", "loss (nats/token)", better="lower")
    for name, line in [*lines.items(), *baselines.items()]:
        figure.add_scatter(
            x=[point.step for point in line],
            y=[point.value for point in line],
            **named(name, "step %{x}: %{y:.4f}"),
            mode="lines+markers" if len(line) < (2 if name in baselines else 40) else "lines",
            line=baseline() if name in baselines else line_of(looks.expert_or_domain(name)),
        )
    name_line_ends(figure, [*(looks.expert_or_domain(name) for name in lines), *(Look() for _ in baselines)])
    if len({point.step for point in points}) == 1:  # a single point has no width to draw an axis by
        figure.update_xaxes(rangemode="tozero")
    rows = [*((p.name, p) for p in points), *((name, p) for name, line in baselines.items() for p in line)]
    table = [{"metric": name, "step": p.step, "value (nats per token)": p.value} for name, p in rows]
    words = f"Line chart, {kind.lower()} of {subject}: {_describe_curves(lines)}"
    if baselines:
        words = f"{words} Baseline: {_describe_curves(baselines)}"
    return CaptionedChart(figure, _curve_title(lines, kind), words, table)


_MOST_BASELINES = 3  # of more domains their mean is drawn


def _baselines(points: Sequence[MetricPoint], name: str) -> dict[str, list[MetricPoint]]:
    """A line for each domain, or the mean of many at the steps that all have."""
    lines = _by_name(points)
    if not lines:
        return {}
    if len(lines) == 1:
        return {name: next(iter(lines.values()))}
    if len(lines) <= _MOST_BASELINES:
        return {f"{domain}: {name}": line for domain, line in lines.items()}
    values = [{point.step: point.value for point in line} for line in lines.values()]
    steps = sorted(set.intersection(*map(set, values)))
    title = f"{name}: mean of {pluralize(len(lines), 'domain')}"
    means = [MetricPoint(name=title, step=step, value=fmean(value[step] for value in values)) for step in steps]
    return {title: means} if means else {}


_RISEN = 1.01  # times its lowest: a line that ends higher has passed it


def _curve_title(lines: Mapping[str, list[MetricPoint]], kind: str) -> str:
    """How many of the lines end lower than they began, or of a single one by how much; and which have passed their
    lowest, where losses do not jump from batch to batch. One point says neither.
    """
    moved = {name: [point.value for point in line] for name, line in lines.items() if len(line) > 1}
    if not moved:
        return kind
    if len(moved) > 1:
        fell = sum(values[-1] < values[0] for values in moved.values())
        result = f"fell on {fell} of {len(moved)} lines"
    else:
        [(first, *_, last)] = moved.values()
        verb = "fell" if last < first else "rose" if last > first else "stands"
        result = f"{verb} from {nats(first)} to {nats(last)}" if first != last else f"{verb} at {nats(last)}"
    risen = [name for name, values in moved.items() if values[-1] > _RISEN * min(values)]
    if kind.startswith("Training") or not risen:
        return f"{kind} {result}: a falling line is still learning"
    where = f" on {listed(risen, 2)}" if len(moved) > 1 else ""
    return f"{kind} {result}, but has risen again{where}: more updates make it worse"


def _by_name(points: Sequence[MetricPoint]) -> dict[str, list[MetricPoint]]:
    lines: dict[str, list[MetricPoint]] = {}
    for point in sorted(points, key=lambda p: (p.name, p.step)):
        lines.setdefault(point.name, []).append(point)
    return lines


def _describe_curves(lines: Mapping[str, list[MetricPoint]]) -> str:
    def describe_line(name: str) -> str:
        first, last = lines[name][0], lines[name][-1]
        return f"{name} goes from {nats(first.value)} at step {first.step} to {nats(last.value)} at step {last.step}"

    more = f"; {pluralize(len(lines) - 4, 'more curve')} in the table" if len(lines) > 4 else ""
    return f"{'; '.join(map(describe_line, list(lines)[:4]))}{more}."


def expert_bars(
    experts: Sequence[ExpertCard], evaluations: Sequence[EvaluationCard], looks: Looks
) -> CaptionedChart | None:
    """Perplexity of the chosen experts side by side on every domain that one of them was scored on.

    The bars of a domain are of the same tokens: of several measures the one that most of these experts share.
    """
    names = [expert.name for expert in experts]
    looks = looks.among(names)
    shown = comparable(evaluations, experts)
    perplexities = {(one.expert, one.domain): one.perplexity for one in shown}
    measures = {one.domain: measure_text(one) for one in shown}
    domains = sorted(measures)
    if not domains:
        return None
    figure = new_figure("domain", PERPLEXITY, better="lower")
    places = name_axis(figure, "x", domains, looks=list(map(looks.domain, domains)))
    for name in names:
        values = [perplexities.get((name, domain)) for domain in domains]
        look = looks.expert(name)
        figure.add_bar(
            x=places,
            y=values,
            **named(with_mark(name, look), "%{y:,.2f}"),
            marker={"color": look.colour, "pattern": {"shape": look.pattern}},
        )
    table = [
        {"domain": d, "measured on": measures[d], **{name: perplexities.get((name, d)) for name in names}}
        for d in domains
    ]
    shared = [domain for domain in domains if all((name, domain) in perplexities for name in names)]
    best = {domain: min(names, key=lambda name: perplexities[name, domain]) for domain in shared}
    return CaptionedChart(figure, _winner_title(names, best), _winners(best, len(domains)), table)


_MOST_WINNERS = 6  # that a caption names


def _winner_title(names: Sequence[str], best: Mapping[str, str]) -> str:
    """Which expert is lowest on the most of the domains on which all were scored; `best` has the lowest on each."""
    if not best or len(names) < 2:
        return "Perplexity of each expert by domain: in each group the shortest bar is best"
    (first, count), *others = Counter(best.values()).most_common()
    tied = bool(others) and others[0][1] == count
    who = "No expert is lowest on the most domains" if tied else f"{first} has the lowest perplexity"
    return f"{who}: {count} of {pluralize(len(best), 'domain')}" if not tied else f"{who}: {count} each"


def _winners(best: Mapping[str, str], num_domains: int) -> str:
    """The expert with the lowest perplexity on each domain on which all were scored."""
    if not best:
        return "Bar chart of perplexity by domain. No domain was scored with all of them on the same tokens."
    shown = [f"{name} on {domain}" for domain, name in best.items()][:_MOST_WINNERS]
    rest = len(best) - len(shown)
    more = f"; {pluralize(rest, 'more domain')} in the table" if rest else ""
    excluded = num_domains - len(best)
    left_out = (
        f" {pluralize(excluded, 'domain')} not counted: not all were scored there on the same tokens."
        if excluded
        else ""
    )
    return f"Bar chart of perplexity by domain. Lowest: {'; '.join(shown)}{more}.{left_out}"


def removal_bars(rows: Sequence[DomainRemoval], looks: Looks) -> CaptionedChart | None:
    """What leaving each expert out costs on its own domain (DEMix table 7); None while no column is known."""
    known = [row for row in rows if removal_change(row) is not None]
    if not known:
        return None
    figure = new_figure("domain", PERPLEXITY, better="lower")
    own = [looks.domain(row.domain) for row in known]
    places = name_axis(figure, "x", [row.domain for row in known], looks=own)
    hatched = {"color": [look.colour for look in own], "pattern": {"shape": "/"}}
    fills = ({"color": [look.colour for look in own]}, hatched, {"color": GREY})
    for (name, title), fill in zip(LABELS.items(), fills, strict=True):
        if any(getattr(row, name) is not None for row in known):
            figure.add_bar(x=places, y=[getattr(row, name) for row in known], name=title, marker=fill)
    never = any(row.without_domain is not None for row in known)
    read = "; close to –Domain means that the domain is forgotten" if never else ""
    rises = [value for row in known if (value := removal_change(row)) is not None]
    title = f"Cost of removing an expert on its own domain: perplexity changes by {_span(rises)}{read}"
    return CaptionedChart(figure, title, _describe_removals(known), perplexity_rows(rows))


def _span(changes: Sequence[float]) -> str:
    """`+12.0 %`, `−1.0 % to +12.0 %`."""
    low, high = change(min(changes)), change(max(changes))
    return low if low == high else f"{low} to {high}"


def _describe_removals(known: Sequence[DomainRemoval]) -> str:
    worst = max(known, key=lambda row: float(removal_change(row) or 0.0))
    near = [
        (row.without_expert, row.without_domain)
        for row in known
        if row.without_expert is not None and row.without_domain is not None
    ]
    num_reached = sum(without_expert >= without_domain for without_expert, without_domain in near)
    never = f" On {num_reached} of {len(near)} domains –Expert is at or above –Domain." if near else ""
    return (
        "Bar chart of perplexity by domain, with the domain's own expert, without it, and retrained without the "
        f"domain where there is such a mixture. The largest rise is on {worst.domain}, from "
        f"{perplexity(worst.with_expert)} to {perplexity(worst.without_expert)} per token "
        f"({change(removal_change(worst))}).{never}"
    )


_MODES: dict[InferenceMode, str] = {
    "naive": "best single expert",
    "label": "the domain's own expert",
    "mixture": "the mixture as saved",
}


def oracle_gap(rows: Sequence[InferenceModeDomain], looks: Looks) -> CaptionedChart:
    """Bars for each domain (rows of `/v1/workbench/inference-modes`): nats per token above the oracle."""
    figure = new_figure("domain", "above the oracle (nats/token)", better="lower")
    own = [looks.domain(row.domain) for row in rows]
    places = name_axis(figure, "x", [row.domain for row in rows], looks=own)
    fills = {"naive": GREY, "label": [look.colour for look in own], "mixture": ACCENT}
    for mode, title in _MODES.items():
        values = [gap(row, mode) for row in rows]
        figure.add_bar(x=places, y=values, name=title, marker_color=fills[mode])
    losses = [value for row in rows if (value := gap(row, "mixture")) is not None]
    beaten = sum(value < 0 for value in losses)
    title = f"Oracle gap: the mixture beats the oracle, with a bar below 0, on {beaten} of {len(losses)} domains"
    return CaptionedChart(figure, title, _words(rows), [_row(row) for row in rows])


def gap(row: InferenceModeDomain, mode: InferenceMode) -> float | None:
    """log(perplexity / the oracle's) in nats per token; None where the inference mode has no number."""
    perplexity = row.by_mode()[mode]
    return None if perplexity is None else math.log(perplexity / row.oracle)


def _row(row: InferenceModeDomain) -> dict[str, Any]:
    gap_by_mode = {f"{title}: gap (nats per token)": gap(row, mode) for mode, title in _MODES.items()}
    by_mode = row.by_mode()
    perplexities = {"oracle": row.oracle, **{title: by_mode[mode] for mode, title in _MODES.items()}}
    return {"domain": row.domain, "tokens": row.num_tokens, **perplexities, **gap_by_mode}


def _words(rows: Sequence[InferenceModeDomain]) -> str:
    losses = {row.domain: gap(row, "mixture") or 0.0 for row in rows}
    worst = max(losses, key=losses.__getitem__)
    beaten = sum(value < 0 for value in losses.values())
    return (
        f"Bar chart of the oracle gap by domain: {ORACLE}. The mixture loses most on {worst} "
        f"({nats(losses[worst])}), and beats the oracle on {beaten} of {len(losses)} domains."
    )


_LINE = 26  # pixels for each bar


def accuracy_bars(findings: Mapping[str, Any]) -> CaptionedChart:
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
    return CaptionedChart(figure, title, words, rows)
