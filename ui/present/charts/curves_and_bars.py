"""Training curves, and bars: perplexities of experts, removals, the oracle gap, accuracies of routings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from engine.statistics.trend import LEVEL, Trend, recent_trend, smooth
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
from workbench.formatting.number_format import change, nats, percent, perplexity, with_error
from workbench.formatting.palette import GREY, Look
from workbench.questions.inference_modes import InferenceMode, InferenceModeDomain
from workbench.questions.removal import DomainRemoval

PERPLEXITY = "perplexity per token"
_FIT = (
    "Trends: a least-squares line against {against} through the last half of the points, with its standard error; "
    f"it is clear where noise alone gives one in less than {1 - LEVEL:.0%} of cases."
)
_Lines = Mapping[str, list[MetricPoint]]


def curves(
    points: Sequence[MetricPoint],
    kind: str,
    subject: str,
    looks: Looks,
    against: Sequence[MetricPoint] = (),
    against_name: str = "",
    *,
    is_log: bool = False,
) -> CaptionedChart | None:
    """A kind of loss over the steps, one line per metric; None when there is nothing to draw yet.

    Names that `looks` does not know are drawn in grey. `against` are the same losses of another training, the baseline.
    Long lines are smoothed over their points. A logarithmic axis has no step 0.
    """
    lines, baselines = _by_name(points), _baselines(against, against_name)
    if is_log:
        lines, baselines = _without_step_0(lines), _without_step_0(baselines)
    if not lines:
        return None
    figure = new_figure("step (optimizer updates)", "loss (nats/token)", better="lower")
    smoothed = {name: smooth_values for name, line in lines.items() if (smooth_values := _smoothed(line))}
    for name, line in [*lines.items(), *baselines.items()]:
        is_baseline, values = name in baselines, [point.value for point in line]
        look, steps = looks.expert_or_domain(name), [point.step for point in line]
        if name in smoothed and not is_baseline:
            figure.add_scatter(x=steps, y=values, **_pale(name, look))
        says = "smoothed at step %{x}: %{y:.4f}" if name in smoothed and not is_baseline else "step %{x}: %{y:.4f}"
        figure.add_scatter(
            x=steps,
            y=values if is_baseline else smoothed.get(name, values),
            **named(name, says),
            mode="lines+markers" if len(line) < (2 if is_baseline else _FEWEST_SMOOTHED) else "lines",
            line=baseline() if is_baseline else line_of(look),
        )
    if is_log:
        figure.update_xaxes(type="log")
    name_line_ends(figure, [*(looks.expert_or_domain(name) for name in lines), *(Look() for _ in baselines)])
    if len({point.step for point in points}) == 1:  # a single point has no width to draw an axis by
        figure.update_xaxes(rangemode="tozero")
    words = f"Line chart, {kind.lower()} of {subject}: {_describe_curves(lines, is_log)}"
    if baselines:
        words = f"{words} Baseline: {_describe_curves(baselines, is_log, with_trend=False)}"
    return CaptionedChart(figure, _curve_title(lines, kind, is_log), words, _curve_rows(lines, baselines, smoothed))


def _curve_rows(lines: _Lines, baselines: _Lines, smoothed: Mapping[str, Sequence[float]]) -> list[dict[str, Any]]:
    rows = [
        {"metric": name, "step": point.step, "value (nats per token)": point.value}
        for name, line in [*lines.items(), *baselines.items()]
        for point in line
    ]
    if smoothed:
        values = [value for name, line in lines.items() for value in smoothed.get(name, [""] * len(line))]
        for row, value in zip(rows, [*values, *[""] * (len(rows) - len(values))], strict=True):
            row["smoothed"] = value
    return rows


_FEWEST_SMOOTHED = 40  # points of a line
_SMOOTHED_SHARE = 10  # a line is fitted to a tenth of the points


def _smoothed(line: Sequence[MetricPoint]) -> list[float]:
    """A smoothed line, empty where the points are so few that they are the line."""
    if len(line) < _FEWEST_SMOOTHED:
        return []
    return smooth([point.value for point in line], len(line) // _SMOOTHED_SHARE)


def describe_smoothing(points: Sequence[MetricPoint]) -> str:
    """How the lines of `curves` are smoothed; empty where none is."""
    num_points = {len(line) for line in _by_name(points).values() if len(line) >= _FEWEST_SMOOTHED}
    if not num_points:
        return ""
    windows = sorted({number // _SMOOTHED_SHARE for number in num_points})
    window = f"{windows[0]}" if len(windows) == 1 else f"{windows[0]} to {windows[-1]}"
    return f"Pale: each stored point. Line: smoothed, at each point a straight fit to the {window} nearest."


def _pale(name: str, look: Look) -> dict[str, Any]:
    """A trace of the points beneath their smoothed line."""
    return {
        **named(name, "step %{x}: %{y:.4f}"),
        "mode": "lines",
        "line": line_of(look, 1),
        "opacity": 0.35,
        "showlegend": False,
    }


def _without_step_0(lines: _Lines) -> dict[str, list[MetricPoint]]:
    later = {name: [point for point in line if point.step > 0] for name, line in lines.items()}
    return {name: line for name, line in later.items() if line}


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


def _trend(line: Sequence[MetricPoint], is_log: bool) -> Trend | None:
    return recent_trend([point.step for point in line], [point.value for point in line], is_log=is_log)


def _curve_title(lines: _Lines, kind: str, is_log: bool) -> str:
    """Where a single line ends and its recent trend, or how many of several fall, rise or have none."""
    if len(lines) == 1:
        [line] = lines.values()
        return f"{kind}: {_describe_end(line, is_log)}" if len(line) > 1 else kind
    trends = {name: trend for name, line in lines.items() if (trend := _trend(line, is_log))}
    rising = [name for name, trend in trends.items() if trend.is_clear and trend.change > 0]
    falling = [name for name, trend in trends.items() if trend.is_clear and trend.change < 0]
    unclear, short = len(trends) - len(rising) - len(falling), len(lines) - len(trends)
    counts = [
        f"falling on {len(falling)}" if falling else "",
        f"rising on {len(rising)} ({listed(rising, 2)})" if rising else "",
        f"no clear trend on {unclear}" if unclear else "",
        f"too few points for a trend on {short}" if short and trends else "",
    ]
    if not trends:
        return f"{kind} of {len(lines)} curves"
    return f"{kind} of {len(lines)} curves in their last half: {', '.join(filter(None, counts))}"


def _describe_end(line: Sequence[MetricPoint], is_log: bool) -> str:
    """`2.60 nats/token, falling by 0.30 ± 0.02 over the last 200 updates`."""
    end = nats((_smoothed(line) or [line[-1].value])[-1])
    trend = _trend(line, is_log)
    if trend is None:
        return f"{end}, {nats(line[0].value)} at step {line[0].step:,}; {len(line)} points are too few for a trend"
    span = f"over the last {trend.last - trend.first:,.0f} updates"
    if not trend.is_clear:
        return f"{end}, no clear trend {span} ({with_error(trend.change, trend.error)})"
    verb = "falling" if trend.change < 0 else "rising"
    return f"{end}, {verb} by {with_error(abs(trend.change), trend.error)} {span}"


def _by_name(points: Sequence[MetricPoint]) -> dict[str, list[MetricPoint]]:
    lines: dict[str, list[MetricPoint]] = {}
    for point in sorted(points, key=lambda p: (p.name, p.step)):
        lines.setdefault(point.name, []).append(point)
    return lines


def _describe_curves(lines: _Lines, is_log: bool, *, with_trend: bool = True) -> str:
    def describe_line(name: str) -> str:
        first, last = lines[name][0], lines[name][-1]
        change_text = (
            f"{name} goes from {nats(first.value)} at step {first.step} to {nats(last.value)} at step {last.step}"
        )
        has_trend = with_trend and _trend(lines[name], is_log) is not None
        return f"{change_text} ({_describe_end(lines[name], is_log).partition(', ')[2]})" if has_trend else change_text

    more = f"; {pluralize(len(lines) - 4, 'more curve')} in the table" if len(lines) > 4 else ""
    words = f"{'; '.join(map(describe_line, list(lines)[:4]))}{more}."
    against = "the logarithm of the step" if is_log else "the step"
    is_fitted = with_trend and any(_trend(line, is_log) for line in lines.values())
    return f"{words} {_FIT.format(against=against)}" if is_fitted else words


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
