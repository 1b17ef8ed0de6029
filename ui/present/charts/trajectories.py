"""Charts of posteriors over a text: by token and on average. `weights` is token x expert."""

from __future__ import annotations

import html
from collections.abc import Sequence
from itertools import pairwise

from ui.present.charts.chart import Chart, fill_of, line_of, name_axis, name_line_ends, named, new_figure
from ui.present.charts.colours import Looks, marked
from ui.present.text.formatting import pluralize
from workbench.formatting.number_format import label, share, weight
from workbench.formatting.palette import Look

Weights = Sequence[Sequence[float]]


def posterior_lines(tokens: Sequence[str], weights: Weights, experts: Sequence[str], looks: Looks) -> Chart:
    """The weight of each expert at every token."""
    figure = new_figure("token (position in the text)", "weight of the expert (0 to 1)")
    figure.update_yaxes(range=[0, 1.02])
    shown = [f"{position}: {label(repr(token), 24)}" for position, token in enumerate(tokens)]
    for column, expert in enumerate(experts):
        figure.add_scatter(
            y=[row[column] for row in weights],
            **named(marked(expert, looks.expert(expert)), "%{text}<br>%{y:.2f}"),
            line=line_of(looks.expert(expert)),
            mode="lines",
            text=shown,
        )
    name_line_ends(figure, list(map(looks.expert, experts)))
    table = [
        {"position": position, "token": token, **dict(zip(experts, row, strict=True))}
        for position, (token, row) in enumerate(zip(tokens, weights, strict=True))
    ]
    return Chart(figure, lead_title(weights, experts), _lead_words(weights, experts), table)


def average_weights(weights: Weights, experts: Sequence[str], looks: Looks) -> Chart:
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
    return Chart(figure, title, f"Bar chart of mean weights: {words}.", table)


def leaders(weights: Weights) -> list[int]:
    """The index of the leading expert at every token."""
    return [max(range(len(row)), key=row.__getitem__) for row in weights]


def lead_title(weights: Weights, experts: Sequence[str]) -> str:
    """A sentence: who leads at how much of a text."""
    places = leaders(weights)
    first, *others = sorted(set(places), key=places.count, reverse=True)
    if not others:
        return f"{experts[first]} leads from the first token to the last"
    turns = sum(one != next_one for one, next_one in pairwise(places))
    most = share(places.count(first) / len(places))
    return f"{experts[first]} leads at {most} of the tokens; the lead changes {pluralize(turns, 'time')}"


def _lead_words(weights: Weights, experts: Sequence[str]) -> str:
    places = leaders(weights)
    shares = {name: places.count(i) / max(1, len(places)) for i, name in enumerate(experts)}
    listing = ", ".join(f"{name} {share(part)}" for name, part in sorted(shares.items(), key=lambda s: -s[1]) if part)
    turns = sum(one != next_one for one, next_one in pairwise(places))
    return (
        f"Line chart of expert weights over {len(places)} tokens. Share of the tokens led: {listing}. "
        f"The lead changes {pluralize(turns, 'time')}."
    )


def tinted_words(tokens: Sequence[str], weights: Weights, experts: Sequence[str], looks: Looks) -> str:
    """HTML of the text, each token on the colour of its leading expert, stronger where the lead is clearer.

    Text and names are escaped; the weights stand in the tooltip, so that colour is not the only sign.
    """
    spans = [
        _chip(token, _tint(looks.expert(experts[place]), row[place]), _weight_words(row, experts, looks))
        for token, row, place in zip(tokens, weights, leaders(weights), strict=True)
    ]
    return f'<div style="white-space:pre-wrap;line-height:1.9;overflow-wrap:anywhere">{"".join(spans)}</div>'


def legend(experts: Sequence[str], places: Sequence[int], looks: Looks) -> str:
    """HTML of the legend: mark, name and the share of tokens that each expert leads, which is no mean weight."""
    total = max(1, len(places))
    chips = [
        _chip(
            f"{marked(name, looks.expert(name))} {share(places.count(i) / total)}",
            f"{_tint(looks.expert(name), 0.8)};padding:0 8px;margin-right:8px;display:inline-block",
        )
        for i, name in enumerate(experts)
    ]
    return f'<div style="line-height:2.2">Share of the tokens led: {"".join(chips)}</div>'


def _chip(text: str, style: str, tooltip: str = "") -> str:
    return f'<span style="{style}" title="{html.escape(tooltip)}">{html.escape(text)}</span>'


def _tint(look: Look, weight: float) -> str:
    style = "dotted" if look.pattern else "solid"  # of a second turn through the colours
    return f"background:{look.tint(weight)};border-bottom:2.5px {style} {look.colour};border-radius:3px"


def _weight_words(row: Sequence[float], experts: Sequence[str], looks: Looks) -> str:
    ranked = sorted(zip(experts, row, strict=True), key=lambda pair: -pair[1])[:4]
    return ", ".join(f"{marked(name, looks.expert(name))} {weight(value)}" for name, value in ranked)
