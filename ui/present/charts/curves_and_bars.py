"""Training curves, and bars that compare perplexities of experts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ui.present.charts.chart import GREY, Chart, line_of, name_axis, name_line_ends, new_figure
from ui.present.charts.colours import Looks, marked
from ui.present.text.formatting import pluralize
from ui.present.text.measures import comparable, measure_text
from ui.present.text.removal import LABELS, change, perplexity_rows
from workbench.answers.changes import DomainRemoval
from workbench.chart_label import label
from workbench.registry.cards import EvaluationCard, ExpertCard, MetricPoint

PERPLEXITY = "perplexity per token"


def curves(points: Sequence[MetricPoint], kind: str, subject: str, looks: Looks) -> Chart | None:
    """A kind of loss over the steps, one line per metric; None when there is nothing to draw yet.

    Names that `looks` does not know are drawn in grey.
    """
    lines = _by_name(points)
    if not lines:
        return None
    figure = new_figure("step (optimizer updates)", "loss (nats/token)", better="lower")
    for name, line in lines.items():
        figure.add_scatter(
            x=[point.step for point in line],
            y=[point.value for point in line],
            name=label(name),
            mode="lines+markers" if len(line) < 40 else "lines",
            line=line_of(looks.named(name)),
        )
    name_line_ends(figure, [looks.named(name) for name in lines])
    if len({point.step for point in points}) == 1:  # a single point has no width to draw an axis by
        figure.update_xaxes(rangemode="tozero")
    table = [{"metric": p.name, "step": p.step, "value (nats per token)": p.value} for p in points]
    title = f"{kind} by step: a falling line is still learning"
    return Chart(figure, title, f"Line chart, {kind.lower()} of {subject}: {_curve_words(lines)}", table)


def _by_name(points: Sequence[MetricPoint]) -> dict[str, list[MetricPoint]]:
    lines: dict[str, list[MetricPoint]] = {}
    for point in sorted(points, key=lambda p: (p.name, p.step)):
        lines.setdefault(point.name, []).append(point)
    return lines


def _curve_words(lines: Mapping[str, list[MetricPoint]]) -> str:
    def line_words(name: str) -> str:
        first, last = lines[name][0], lines[name][-1]
        return f"{name} goes from {first.value:.3f} at step {first.step} to {last.value:.3f} at step {last.step}"

    more = f"; {pluralize(len(lines) - 4, 'more curve')} in the table" if len(lines) > 4 else ""
    return f"{'; '.join(map(line_words, list(lines)[:4]))}{more}."


def expert_bars(experts: Sequence[ExpertCard], evaluations: Sequence[EvaluationCard], looks: Looks) -> Chart | None:
    """Perplexity of the chosen experts side by side on every domain that one of them was scored on.

    The bars of a domain are of the same tokens: of several measures the one that most of these experts share.
    """
    names = [expert.name for expert in experts]
    shown = comparable([one for one in evaluations if one.expert in names])
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
            name=label(marked(name, look)),
            marker={"color": look.colour, "pattern": {"shape": look.pattern}},
        )
    table = [
        {"domain": d, "measured on": measures[d], **{name: perplexities.get((name, d)) for name in names}}
        for d in domains
    ]
    title = "Perplexity of each expert by domain: in each group the shortest bar is best"
    return Chart(figure, title, _winners(names, domains, perplexities), table)


_MOST_WINNERS = 6  # that a caption names


def _winners(names: Sequence[str], domains: Sequence[str], perplexities: Mapping[tuple[str, str], float]) -> str:
    """The expert with the lowest perplexity on each domain on which all were scored."""
    shared = [domain for domain in domains if all((name, domain) in perplexities for name in names)]
    if not shared:
        return "Bar chart of perplexity by domain. No domain was scored with all of them on the same tokens."
    best = [f"{min(names, key=lambda n: perplexities[n, d])} on {d}" for d in shared[:_MOST_WINNERS]]
    rest = len(shared) - len(best)
    more = f"; {pluralize(rest, 'more domain')} in the table" if rest else ""
    excluded = len(domains) - len(shared)
    left_out = (
        f" {pluralize(excluded, 'domain')} not counted: not all were scored there on the same tokens."
        if excluded
        else ""
    )
    return f"Bar chart of perplexity by domain. Lowest: {'; '.join(best)}{more}.{left_out}"


def removal_bars(rows: Sequence[DomainRemoval], looks: Looks) -> Chart | None:
    """What leaving each expert out costs on its own domain (DEMix table 7); None while no column is known."""
    known = [row for row in rows if change(row) is not None]
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
    read = "close to –Domain means that the domain is forgotten" if never else "the second bar of each pair"
    title = f"Cost of removing an expert on its own domain: {read}"
    return Chart(figure, title, _removal_words(known), perplexity_rows(rows))


def _removal_words(known: Sequence[DomainRemoval]) -> str:
    worst = max(known, key=lambda row: float(change(row) or 0.0))
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
        f"{worst.with_expert:,.2f} to {worst.without_expert:,.2f} per token ({change(worst):+.1f} %).{never}"
    )
