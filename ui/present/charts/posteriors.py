"""Charts of posteriors: of whole domains (DEMix figures 4, 7, 8), and of one text. `weights` is token x expert."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from ui.present.charts.colours import Looks, with_mark
from ui.present.charts.heatmap import add_frames, add_targets, frame, new_heatmap
from ui.present.text.formatting import pluralize
from ui.present.text.posteriors import Weights, leaders, stability_text
from workbench.formatting.chart_template import (
    CaptionedChart,
    baseline,
    fill_of,
    line_of,
    name_axis,
    name_line_ends,
    named,
    new_figure,
    new_subplots,
)
from workbench.formatting.number_format import full_label, label, share, shorten, weight
from workbench.formatting.palette import Look
from workbench.questions.posteriors import DomainPosterior, PosteriorMap

_COLUMNS = 2
_ROW_PIXELS = 190


def posterior_heatmap(answer: PosteriorMap, rows: Sequence[DomainPosterior], kind: str, looks: Looks) -> CaptionedChart:
    """The posterior of each expert (columns) on each domain (rows); `kind` says which domains these are."""
    experts, domains = answer.experts, [row.domain for row in rows]
    looks = looks.among(experts)
    figure = new_heatmap(
        "expert",
        "domain of the text",
        experts,
        domains,
        looks=([*map(looks.expert, experts)], [*map(looks.domain, domains)]),
        z=[row.posterior for row in rows],
        zmin=0,
        zmax=1,
        numbers="%{z:.2f}",
        colorbar={"title": "posterior"},
    )
    _frame_homes(figure, answer, domains, looks)
    add_targets(figure, [_hover(experts, row) for row in rows])
    return CaptionedChart(
        figure,
        f"{kind}: read a row for the experts that a domain's text is attributed to",
        _describe_map(answer, rows),
        [
            {
                "domain": row.domain,
                "blocks": row.num_blocks,
                **dict(zip(experts, row.posterior, strict=True)),
                "stable": stability_text(row),
            }
            for row in rows
        ],
    )


def _hover(experts: Sequence[str], row: DomainPosterior) -> list[str]:
    shares = zip(experts, row.posterior, strict=True)
    return [f"{full_label(expert)} on {full_label(row.domain)}<br>{weight(share)}" for expert, share in shares]


def _frame_homes(figure: Any, answer: PosteriorMap, domains: Sequence[str], looks: Looks) -> None:
    homes = enumerate(zip(answer.experts, answer.homes, strict=True))
    colours = {expert: looks.expert(expert).colour for expert in answer.experts}
    frames = [
        frame(domains.index(home), column, colour=colours[expert])
        for column, (expert, home) in homes
        if home in domains
    ]
    add_frames(figure, *frames)


def _describe_map(answer: PosteriorMap, rows: Sequence[DomainPosterior]) -> str:
    largest = [
        f"{row.domain}: {answer.experts[row.posterior.index(share)]} {weight(share)}"
        for row in rows[:8]
        for share in [max(row.posterior)]
    ]
    more = f"; {len(rows) - 8} more are in the table" if len(rows) > 8 else ""
    frames = " A frame marks a domain's own expert." if any(row.domain in answer.homes for row in rows) else ""
    return f"Heatmap of domains (rows) by experts (columns). Largest share of each: {'; '.join(largest)}{more}.{frames}"


def posterior_paths(answer: PosteriorMap, rows: Sequence[DomainPosterior], kind: str, looks: Looks) -> CaptionedChart:
    """The posterior of each expert before each block, a panel for each domain; a dashed line where it is stable."""
    num_rows = -(-len(rows) // _COLUMNS)
    titles = [f"{shorten(row.domain, 30)}: stable {stability_text(row)}" for row in rows]
    figure = new_subplots(
        num_rows,
        _COLUMNS,
        titles,
        90 + _ROW_PIXELS * num_rows,
        shared_yaxes=True,
        vertical_spacing=0.32 / max(1, num_rows),
        horizontal_spacing=0.04,
    )
    for number, row in enumerate(rows):
        where = {"row": number // _COLUMNS + 1, "col": number % _COLUMNS + 1}
        _draw_paths(figure, answer.experts, row, where, looks, is_first=number == 0)
    figure.update_layout(
        legend={"orientation": "h", "y": 1 + 45 / (_ROW_PIXELS * num_rows), "yanchor": "bottom"},
    )
    figure.update_yaxes(range=[0, 1.02])
    figure.update_yaxes(title="posterior (0 to 1)", col=1)
    figure.update_xaxes(title="blocks seen", row=num_rows)
    return CaptionedChart(
        figure,
        f"{kind}: where lines are flat, the posterior can be saved as a prior",
        _describe_paths(rows),
        _steps(answer, rows),
    )


def _draw_paths(
    figure: Any,
    experts: Sequence[str],
    row: DomainPosterior,
    where: Mapping[str, int],
    looks: Looks,
    *,
    is_first: bool,
) -> None:
    for column, (expert, path) in enumerate(zip(experts, row.trajectory, strict=True)):
        figure.add_scatter(
            y=path,
            **named(with_mark(expert, looks.expert(expert)), "after %{x} blocks: %{y:.2f}"),
            legendgroup=str(column),
            showlegend=is_first,
            mode="lines",
            line=line_of(looks.expert(expert)),
            **where,
        )
    if row.stable_after is not None:
        figure.add_vline(x=row.stable_after, line=baseline(), **where)


def _describe_paths(rows: Sequence[DomainPosterior]) -> str:
    stable = "; ".join(f"{row.domain} {stability_text(row)}" for row in rows[:8])
    return (
        "Line charts of the posterior over blocks. A dashed line marks the block from which on no share moves "
        f"by more than 0.05: {stable}."
    )


def _steps(answer: PosteriorMap, rows: Sequence[DomainPosterior]) -> list[dict[str, Any]]:
    return [
        {"domain": row.domain, "blocks seen": step, **dict(zip(answer.experts, shares, strict=True))}
        for row in rows
        for step, shares in enumerate(zip(*row.trajectory, strict=True))
    ]


def posterior_lines(tokens: Sequence[str], weights: Weights, experts: Sequence[str], looks: Looks) -> CaptionedChart:
    """The weight of each expert at every token."""
    figure = new_figure("token (position in the text)", "weight of the expert (0 to 1)")
    figure.update_yaxes(range=[0, 1.02])
    shown = [f"{position}: {label(repr(token), 24)}" for position, token in enumerate(tokens)]
    for column, expert in enumerate(experts):
        figure.add_scatter(
            y=[row[column] for row in weights],
            **named(with_mark(expert, looks.expert(expert)), "%{text}<br>%{y:.2f}"),
            line=line_of(looks.expert(expert)),
            mode="lines",
            text=shown,
        )
    name_line_ends(figure, list(map(looks.expert, experts)))
    table = [
        {"position": position, "token": token, **dict(zip(experts, row, strict=True))}
        for position, (token, row) in enumerate(zip(tokens, weights, strict=True))
    ]
    return CaptionedChart(figure, lead_title(weights, experts), _describe_leads(weights, experts), table)


def average_weights(weights: Weights, experts: Sequence[str], looks: Looks) -> CaptionedChart:
    """The mean weight of each expert over the full text, the largest first."""
    means = {i: sum(row[i] for row in weights) / max(1, len(weights)) for i in range(len(experts))}
    order = sorted(means, key=lambda i: -means[i])
    names = [experts[i] for i in order]
    figure = new_figure("mean weight (0 to 1)", "", height=90 + 34 * len(experts))
    shown = list(map(looks.expert, names))
    places = name_axis(figure, "y", names, 32, shown)
    figure.add_bar(x=[means[i] for i in order], y=places, orientation="h", marker=fill_of(shown))
    figure.update_traces(hovertemplate="%{x:.2f}<extra></extra>")
    figure.update_yaxes(autorange="reversed")
    words = ", ".join(f"{experts[i]} {weight(means[i])}" for i in order[:5])
    table = [{"expert": experts[i], "mean weight": means[i]} for i in order]
    first = order[0]
    title = f"{experts[first]} has the largest mean weight over the text, {weight(means[first])}"
    return CaptionedChart(figure, title, f"Bar chart of mean weights: {words}.", table)


def lead_title(weights: Weights, experts: Sequence[str]) -> str:
    """A sentence: who leads at how much of a text."""
    places = leaders(weights)
    first, *others = sorted(set(places), key=places.count, reverse=True)
    if not others:
        return f"{experts[first]} leads from the first token to the last"
    most = share(places.count(first) / len(places))
    return f"{experts[first]} leads at {most} of the tokens; {_turns(places)}"


def _turns(places: Sequence[int]) -> str:
    return f"the lead changes {pluralize(sum(one != following for one, following in pairwise(places)), 'time')}"


def _describe_leads(weights: Weights, experts: Sequence[str]) -> str:
    places = leaders(weights)
    shares = {name: places.count(i) / max(1, len(places)) for i, name in enumerate(experts)}
    listing = ", ".join(f"{name} {share(part)}" for name, part in sorted(shares.items(), key=lambda s: -s[1]) if part)
    return (
        f"Line chart of expert weights over {len(places)} tokens. Share of the tokens led: {listing}; {_turns(places)}."
    )


def legend(experts: Sequence[str], places: Sequence[int], looks: Looks) -> str:
    """HTML of the legend: mark, name and the share of tokens that each expert leads, which is not a mean weight."""
    total = max(1, len(places))
    chips = [
        f'<span style="{_tint(looks.expert(name))};padding:0 8px;margin-right:8px;display:inline-block">'
        f"{html.escape(with_mark(name, looks.expert(name)))} {share(places.count(i) / total)}</span>"
        for i, name in enumerate(experts)
    ]
    return f'<div style="line-height:2.2">Share of the tokens led: {"".join(chips)}</div>'


def _tint(look: Look) -> str:
    style = "dotted" if look.pattern else "solid"  # of a second turn through the colours
    return f"background:{look.tint(0.8)};border-bottom:2.5px {style} {look.colour};border-radius:3px"
