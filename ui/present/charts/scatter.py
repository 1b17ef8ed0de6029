"""Scatter of specialization ratios against bigram overlap, a point for each cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ui.present.charts.chart import Chart, named, new_figure
from ui.present.charts.colours import Looks, marked
from ui.present.text.correlations import numbers
from workbench.formatting.number_format import full_label, ratio, weight
from workbench.questions.affinity import Affinity, AffinityCell


def affinity_scatter(answer: Affinity, looks: Looks) -> Chart | None:
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
            **named(marked(expert, looks.expert(expert)), "%{text}<br>overlap %{x:.2f}, ratio %{y:.2f} ×"),
            mode="markers",
            marker={"color": looks.expert(expert).colour, "size": 10},
            text=[f"on {full_label(cell.domain)}" for cell in own],
        )
    low, high = min(away, key=_overlap), max(away, key=_overlap)
    words = (
        f"Scatter plot of {len(away)} out-of-domain cells. The least text is shared by {_cell_words(low)}, "
        f"the most by {_cell_words(high)}."
    )
    return Chart(figure, _title(answer), words, _table(answer.cells))


def _overlap(cell: AffinityCell) -> float:
    assert cell.overlap is not None  # only such cells are drawn
    return cell.overlap


def _cell_words(cell: AffinityCell) -> str:
    return f"{cell.home} and {cell.domain} (overlap {weight(cell.overlap)}; {cell.expert}: {ratio(cell.ratio)})"


def _title(answer: Affinity) -> str:
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
