"""Learned against kept, a point for each expert: up and right is better (MoDE table 1 as a picture). Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

import plotly.graph_objects as go

from ui.present.charts.chart import GREY, Chart, colour_of, label, new_figure
from ui.present.text.formatting import listed, pluralize
from ui.present.text.measures import in_percent
from ui.present.text.retention import method_words, placed, retention_rows, retention_words

_UNITS = {"accuracy": "accuracy (%), higher is better", "perplexity": "perplexity, lower is better (axis turned)"}

_WIDE, _HIGH = 0.25, 0.06  # what a name takes of the picture's width and height


def retention_scatter(found: Mapping[str, Any], number: str) -> Chart | None:
    """Points of the experts whose number is known on all targets and on the domain to be kept; None without any."""
    rows = placed(found, number)
    if not rows:
        return None
    figure = new_figure(
        f"kept: {label(found['retain'], 24)}, {_UNITS[number]}",
        f"learned: {label(listed(found['targets'], 2), 36)}, {_UNITS[number]}",
        height=420,
    )
    figure.update_layout(hovermode="closest")
    names = _names(found, number)
    for place, method in enumerate(dict.fromkeys(method_words(row) for row in found["rows"])):
        _add(figure, found, [row for row in rows if method_words(row) == method], number, place, names)
    for row in rows:
        if row["is_seed"]:
            knew = {"annotation_text": "what the seed knew", "annotation_position": "bottom right"}
            figure.add_vline(x=_value(row["kept"][number], number), line={"dash": "dash", "color": GREY}, **knew)
    if number == "perplexity":
        figure.update_xaxes(autorange="reversed", type="log")
        figure.update_yaxes(autorange="reversed", type="log")
    words = f"Scatter plot of {pluralize(len(rows), 'expert')}. {retention_words(found, number)}"
    return Chart(figure, _title(found, number), words, retention_rows(found))


def _add(
    figure: go.Figure,
    found: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    number: str,
    place: int,
    names: Mapping[str, str],
) -> None:
    if rows:
        figure.add_scatter(
            x=[_value(row["kept"][number], number) for row in rows],
            y=[_value(row["learned"][number], number) for row in rows],
            name=label(method_words(rows[0])),
            mode="markers+text",
            text=[names.get(row["expert"], "") for row in rows],
            hovertext=[label(row["expert"], 60) for row in rows],
            textposition=[_side(row, found, number) for row in rows],
            cliponaxis=False,
            marker={
                "color": colour_of(place),
                "size": 12,
                "symbol": ["circle" if row["is_ahead"][number] else "circle-open" for row in rows],
            },
            hovertemplate="%{hovertext}<br>kept %{x:.2f}, learned %{y:.2f}<extra></extra>",
        )


def _names(found: Mapping[str, Any], number: str) -> dict[str, str]:
    """The names that stand in the picture, without what all begin with: of those that would overlap the first ahead."""
    rows = sorted(placed(found, number), key=lambda row: not row["is_ahead"][number])
    start = _shared_start([row["expert"] for row in rows]) if len(rows) > 1 else ""
    kept, learned = ([*_spread([row[axis][number] for row in rows], number)] for axis in ("kept", "learned"))
    taken: list[tuple[float, float]] = []
    names = {}
    for row, x, y in zip(rows, kept, learned, strict=True):
        left = x - _WIDE if _side(row, found, number) == "top left" else x
        if all(abs(y - other) > _HIGH or abs(left - beside) > _WIDE for beside, other in taken):
            taken.append((left, y))
            names[row["expert"]] = label(row["expert"].removeprefix(start), 22)
    return names


def _shared_start(names: Sequence[str]) -> str:
    """The whole words that all of these names begin with."""
    signs = takewhile(lambda column: len(set(column)) == 1, zip(*names, strict=False))
    start = "".join(column[0] for column in signs)
    return start[: 1 + max(start.rfind(sign) for sign in "-/_. ")]


def _spread(values: Sequence[float], number: str) -> Iterator[float]:
    """Where values stand on their axis, from 0 to 1."""
    places = [value if number == "accuracy" else -math.log(value) for value in values]
    least, most = min(places), max(places)
    yield from ((place - least) / (most - least) if most > least else 0.5 for place in places)


def _side(row: Mapping[str, Any], found: Mapping[str, Any], number: str) -> str:
    """Names stand towards the middle, so that the chart's edge cuts none."""
    kept = [one["kept"][number] for one in placed(found, number)]
    is_high = row["kept"][number] > (min(kept) + max(kept)) / 2
    return "top left" if is_high == (number == "accuracy") else "top right"


def _value(value: float, number: str) -> float | None:
    return in_percent(value) if number == "accuracy" else value


def _title(found: Mapping[str, Any], number: str) -> str:
    rows = placed(found, number)
    if len(rows) < 2:
        return "Learned and kept: with a second expert there is something to compare"
    ahead = [row["expert"] for row in rows if row["is_ahead"][number]]
    who = f"{ahead[0]} does both best" if len(ahead) == 1 else f"{len(ahead)} of {len(rows)} are behind nobody in both"
    return f"Up is learned, right is kept: {who} (filled points)"
