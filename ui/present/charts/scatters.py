"""Scatter plots: learning vs. forgetting of experts (MoDE table 1), and specialization by bigram overlap."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

import plotly.graph_objects as go

from ui.present.charts.colours import Looks, with_mark
from ui.present.text.formatting import listed, pluralize
from ui.present.text.measures import in_percent
from ui.present.text.retention import ExpertPosition, describe_retention, method_label, placed_experts, retention_rows
from ui.present.text.specialization import numbers
from workbench.formatting.chart_template import CaptionedChart, baseline, named, new_figure
from workbench.formatting.number_format import full_label, label, ratio, weight
from workbench.questions.affinity import Affinity, AffinityCell
from workbench.questions.retention import Metric, Retention

_UNITS = {"accuracy": "accuracy (%), higher is better", "perplexity": "perplexity, lower is better (axis turned)"}

_SHAPES = ("circle", "square", "diamond", "triangle-up", "star", "hexagon")  # of methods
_WIDE, _HIGH = 0.25, 0.06  # what a name takes of the picture's width and height


def retention_scatter(answer: Retention, number: Metric, looks: Looks) -> CaptionedChart | None:
    """A point for each expert with scores on all targets and on the retained domain; None without such an expert."""
    rows = placed_experts(answer, number)
    if not rows:
        return None
    figure = new_figure(
        f"kept: {label(answer.retain, 24)}, {_UNITS[number]}",
        f"learned: {label(listed(answer.targets, 2), 36)}, {_UNITS[number]}",
        height=420,
    )
    names = _names(answer, number, looks)
    for index, method in enumerate(dict.fromkeys(method_label(row) for row in answer.rows)):
        _add(
            figure,
            answer,
            [expert for expert in rows if method_label(expert.row) == method],
            number,
            _SHAPES[index % len(_SHAPES)],
            names,
            looks,
        )
    for expert in rows:
        if expert.row.is_seed:
            knew = {"annotation_text": "seed model", "annotation_position": "bottom right"}
            figure.add_vline(x=_value(expert.kept, number), line=baseline(), **knew)
    if number == "perplexity":
        figure.update_xaxes(autorange="reversed", type="log")
        figure.update_yaxes(autorange="reversed", type="log")
    words = f"Scatter plot of {pluralize(len(rows), 'expert')}. {describe_retention(answer, number)}"
    return CaptionedChart(figure, _title(answer, number), words, retention_rows(answer))


def _add(
    figure: go.Figure,
    answer: Retention,
    rows: Sequence[ExpertPosition],
    number: Metric,
    shape: str,
    names: Mapping[str, str],
    looks: Looks,
) -> None:
    if rows:
        figure.add_scatter(
            x=[_value(row.kept, number) for row in rows],
            y=[_value(row.learned, number) for row in rows],
            name=label(method_label(rows[0].row)),
            mode="markers+text",
            text=[names.get(row.row.expert, "") for row in rows],
            hovertext=[label(row.row.expert, 60) for row in rows],
            textposition=[_side(row, answer, number) for row in rows],
            cliponaxis=False,
            marker={
                "color": [looks.expert(row.row.expert).colour for row in rows],
                "size": 12,
                "symbol": [shape if row.is_ahead else f"{shape}-open" for row in rows],
            },
            hovertemplate="%{hovertext}<br>kept %{x:.2f}, learned %{y:.2f}<extra></extra>",
        )


def _names(answer: Retention, number: Metric, looks: Looks) -> dict[str, str]:
    """The labels of points, without their common prefix; of overlapping labels only the first is shown."""
    rows = sorted(placed_experts(answer, number), key=lambda expert: not expert.is_ahead)
    start = _shared_start([expert.row.expert for expert in rows]) if len(rows) > 1 else ""
    kept, learned = (
        _spread([expert.kept for expert in rows], number),
        _spread([expert.learned for expert in rows], number),
    )
    taken: list[tuple[float, float]] = []
    names = {}
    for expert, x, y in zip(rows, kept, learned, strict=True):
        left = x - _WIDE if _side(expert, answer, number) == "top left" else x
        if all(abs(y - other) > _HIGH or abs(left - beside) > _WIDE for beside, other in taken):
            taken.append((left, y))
            names[expert.row.expert] = label(
                with_mark(expert.row.expert.removeprefix(start), looks.expert(expert.row.expert)), 25
            )
    return names


def _shared_start(names: Sequence[str]) -> str:
    signs = takewhile(lambda column: len(set(column)) == 1, zip(*names, strict=False))
    start = "".join(column[0] for column in signs)
    return start[: 1 + max(start.rfind(sign) for sign in "-/_. ")]


def _spread(values: Sequence[float], number: Metric) -> Iterator[float]:
    """The position of values on their axis, from 0 to 1."""
    places = [value if number == "accuracy" else -math.log(value) for value in values]
    least, most = min(places), max(places)
    yield from ((place - least) / (most - least) if most > least else 0.5 for place in places)


def _side(position: ExpertPosition, answer: Retention, number: Metric) -> str:
    """The side of a point's label: towards the middle, so that the chart's edge cuts none."""
    kept = [expert.kept for expert in placed_experts(answer, number)]
    is_high = position.kept > (min(kept) + max(kept)) / 2
    return "top left" if is_high == (number == "accuracy") else "top right"


def _value(value: float, number: Metric) -> float | None:
    return in_percent(value) if number == "accuracy" else value


def _title(answer: Retention, number: Metric) -> str:
    rows = placed_experts(answer, number)
    if len(rows) < 2:
        return "Learning vs. forgetting: add a second expert to compare"
    ahead = [row.row.expert for row in rows if row.is_ahead]
    who = (
        f"{ahead[0]} is best at both"
        if len(ahead) == 1
        else f"{len(ahead)} of {len(rows)} experts are not beaten in both"
    )
    return f"Learning (up) vs. retention (right): {who} (filled points)"


def affinity_scatter(answer: Affinity, looks: Looks) -> CaptionedChart | None:
    """Every out-of-domain cell with both numbers; None without any. The table holds all cells."""
    away = [cell for cell in answer.cells if cell.home != cell.domain and cell.overlap is not None]
    if not away:
        return None
    figure = new_figure(
        "share of frequent bigrams in common (0 to 1)", "perplexity ratio to the domain's own expert (log axis)"
    )
    figure.update_yaxes(type="log")
    for expert in dict.fromkeys(cell.expert for cell in answer.cells):
        own = [cell for cell in away if cell.expert == expert]
        figure.add_scatter(
            x=[cell.overlap for cell in own],
            y=[cell.ratio for cell in own],
            **named(with_mark(expert, looks.expert(expert)), "%{text}<br>overlap %{x:.2f}, ratio %{y:.2f} ×"),
            mode="markers",
            marker={"color": looks.expert(expert).colour, "size": 10},
            text=[f"on {full_label(cell.domain)}" for cell in own],
        )
    low, high = min(away, key=_overlap), max(away, key=_overlap)
    words = (
        f"Scatter plot of {len(away)} out-of-domain cells. The least text is shared by {_describe_cell(low)}, "
        f"the most by {_describe_cell(high)}."
    )
    return CaptionedChart(figure, _scatter_title(answer), words, _table(answer.cells))


def _overlap(cell: AffinityCell) -> float:
    assert cell.overlap is not None  # only such cells are drawn
    return cell.overlap


def _describe_cell(cell: AffinityCell) -> str:
    return f"{cell.home} and {cell.domain} (overlap {weight(cell.overlap)}; {cell.expert}: {ratio(cell.ratio)})"


def _scatter_title(answer: Affinity) -> str:
    correlation = answer.without_homes
    if correlation is None:
        return "Specialization ratio by overlap: too few cells for a correlation"
    falling = "Specialization ratio by overlap: if points fall to the right, shared text helps and r is above 0"
    return f"{falling}: {numbers(correlation)}"


def _table(cells: Sequence[AffinityCell]) -> list[dict[str, Any]]:
    return [
        {
            "expert": cell.expert,
            "domain": cell.domain,
            "in-domain": cell.home == cell.domain,
            "ratio to own expert": cell.ratio,
            "bigram overlap": cell.overlap,
        }
        for cell in cells
    ]
