"""Words tinted by their leading expert, with its mark before each run of words, and the strip of all weights.

Text and names are escaped. Each token carries its full distribution, which the page shows on hover and by arrow keys.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from itertools import pairwise

from ui.present.charts.trajectories import leaders
from ui.present.text.formatting import pluralize
from workbench.formatting.palette import GREY, Look

Rows = Sequence[Sequence[float]]  # token × expert
SHOWN = 7  # experts in a strip, and at least in a distribution; the others are one
MOST_LINES, LEAST_WEIGHT = 24, 0.005  # of a distribution: lines, and the weight that has one
NUM_COLUMNS = 160  # of a strip; more tokens share one


def tinted_tokens(tokens: Sequence[str], rows: Rows, names: Sequence[str], looks: Sequence[Look]) -> str:
    """HTML of the tokens. A stronger tint is a greater weight of the leading expert."""
    leading = leaders(rows)
    return "".join(
        _mark(looks[place], number == 0 or leading[number - 1] != place) + _token(text, row, place, names, looks)
        for number, (text, row, place) in enumerate(zip(tokens, rows, leading, strict=True))
    )


def _mark(look: Look, is_first: bool) -> str:
    """The mark of the expert that leads from here on."""
    return f'<sup class="mark" aria-hidden="true">{html.escape(look.mark)}</sup>' if is_first and look.mark else ""


def _token(text: str, row: Sequence[float], place: int, names: Sequence[str], looks: Sequence[Look]) -> str:
    look = looks[place]
    style = f"background:{look.tint(row[place])};border-color:{look.colour}"
    words = html.escape(distribution(row, names), quote=True)
    return f'<span class="token" style="{style}" data-weights="{words}">{html.escape(text)}</span>'


def distribution(row: Sequence[float], names: Sequence[str]) -> str:
    """The weights at one token in words, one line for each expert, the greatest first."""
    ranked = sorted(zip(row, names, strict=True), reverse=True)
    num_shown = max(SHOWN, min(MOST_LINES, sum(weight >= LEAST_WEIGHT for weight in row)))
    named, rest = ranked[:num_shown], ranked[num_shown:]
    lines = [f"{name} {weight:.2f}" for weight, name in named]
    if rest:
        lines.append(f"{pluralize(len(rest), 'other')} {sum(weight for weight, _ in rest):.2f}")
    return "\n".join(lines)


def strip_svg(rows: Rows, names: Sequence[str], looks: Sequence[Look]) -> str:
    """All weights from the first token to the last, one upon another; the greatest mean is the lowest."""
    columns = _columns(rows)
    means = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    order = sorted(range(len(names)), key=lambda place: -means[place])
    below, areas = [0.0] * len(columns), []
    for place in order[:SHOWN]:
        above = [base + column[place] for base, column in zip(below, columns, strict=True)]
        areas.append(_area(below, above, looks[place].colour))
        below = above
    if len(order) > SHOWN:
        areas.append(_area(below, [1.0] * len(columns), GREY))
    words = ", ".join(f"{names[place]} {means[place]:.0%}" for place in order[:SHOWN])
    return (
        f'<svg class="posterior" role="img" aria-label="Mean weights: {html.escape(words, quote=True)}" '
        f'viewBox="0 0 {len(columns)} 1" preserveAspectRatio="none">{"".join(areas)}</svg>'
    )


def _columns(rows: Rows) -> list[list[float]]:
    """The rows, or means over neighbours where there are too many."""
    number = min(len(rows), NUM_COLUMNS)
    edges = [round(place * len(rows) / number) for place in range(number + 1)]
    return [
        [sum(column) / (end - start) for column in zip(*rows[start:end], strict=True)] for start, end in pairwise(edges)
    ]


def _area(below: Sequence[float], above: Sequence[float], colour: str) -> str:
    """A path of steps between two heights, 0 at the bottom."""
    if max(top - base for base, top in zip(below, above, strict=True)) < 0.002:
        return ""
    there = "".join(f"L{place} {1 - top:.3f}H{place + 1}" for place, top in enumerate(above))
    back = "".join(f"L{place + 1} {1 - base:.3f}H{place}" for place, base in reversed(list(enumerate(below))))
    return f'<path fill="{colour}" d="M0 {1 - below[0]:.3f}{there}{back}Z"/>'
