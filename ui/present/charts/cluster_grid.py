"""Which temperature and top-k a cluster gate is best with (C-BTM table 9). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ui.present.charts.cells import frame_cell, new_heatmap
from ui.present.charts.chart import Chart

PAPER_TEMPERATURE = 0.1
_SAME = 1e-3  # of the perplexity: a difference below it is none


def grid_picture(found: Mapping[str, Any], perplexity: Sequence[Sequence[float]]) -> Chart:
    """Perplexities by temperature and top-k, with the lowest, the paper's temperature and what is saved marked."""
    temperatures, top_ks = found["temperatures"], found["top_ks"]
    figure = new_heatmap(
        "experts at each token (top k)",
        "temperature",
        [_told(k, found) for k in top_ks],
        [f"{t:g} (paper)" if t == PAPER_TEMPERATURE else f"{t:g}" for t in temperatures],
        z=perplexity,
        zmax=_ceiling(perplexity),
        colorscale="Viridis_r",
        numbers="%{z:.2f}",
        colorbar={"title": "perplexity"},
        hovertemplate="%{z:.3f} per token<extra></extra>",
    )
    frame_cell(figure, *_best(perplexity))
    if found["saved"]["temperature"] in temperatures and found["saved"]["top_k"] in top_ks:
        saved = temperatures.index(found["saved"]["temperature"]), top_ks.index(found["saved"]["top_k"])
        frame_cell(figure, *saved, dash="dot")
    return Chart(figure, _title(found, perplexity), _words(found, perplexity), grid_rows(found, perplexity))


def grid_rows(found: Mapping[str, Any], perplexity: Sequence[Sequence[float]]) -> list[dict[str, Any]]:
    """A row for each temperature, a column for each top-k."""
    return [
        {"temperature": temperature, **{f"top {k}": value for k, value in zip(found["top_ks"], row, strict=True)}}
        for temperature, row in zip(found["temperatures"], perplexity, strict=True)
    ]


def grid_words(found: Mapping[str, Any], perplexity: Sequence[Sequence[float]]) -> str:
    """The lowest perplexity and where it is; whether temperature matters at all here."""
    row, column = _best(perplexity)
    temperature, k = found["temperatures"][row], found["top_ks"][column]
    told = f"Lowest at temperature {temperature:g} with top {k}: {perplexity[row][column]:,.2f} per token."
    paper = perplexity[found["temperatures"].index(PAPER_TEMPERATURE)] if _has_paper(found) else None
    if paper is None:
        return told
    change = (min(paper) / perplexity[row][column] - 1) * 100
    beside = "as good as that" if change < _SAME * 100 else f"{change:.1f} % above it"
    return f"{told} The paper's temperature of {PAPER_TEMPERATURE} is {beside} with its best top-k."


def _has_paper(found: Mapping[str, Any]) -> bool:
    return PAPER_TEMPERATURE in found["temperatures"]


def _best(perplexity: Sequence[Sequence[float]]) -> tuple[int, int]:
    cells = [(row, column) for row, values in enumerate(perplexity) for column in range(len(values))]
    return min(cells, key=lambda cell: perplexity[cell[0]][cell[1]])


def _told(k: int, found: Mapping[str, Any]) -> str:
    return f"all {k}" if k == len(found["experts"]) else str(k)


def _ceiling(perplexity: Sequence[Sequence[float]]) -> float:
    # One far cell must not wash out all the others.
    values = sorted(value for row in perplexity for value in row)
    return max(values[int(0.9 * (len(values) - 1))], values[0] * 1.001)


def _title(found: Mapping[str, Any], perplexity: Sequence[Sequence[float]]) -> str:
    columns = list(zip(*perplexity, strict=True))
    best = [column.index(min(column)) for column in columns[1:]]  # with one expert temperature changes nothing
    inner = sum(0 < place < len(found["temperatures"]) - 1 for place in best)
    if best and inner == len(best):
        return "How sharp should the choice be? Read down a column: its lowest cell lies between the ends"
    return "How sharp should the choice be? Read down a column: an end is best somewhere, so look beyond it"


def _words(found: Mapping[str, Any], perplexity: Sequence[Sequence[float]]) -> str:
    return (
        "Heatmap of perplexity by temperature (rows) and experts at each token (columns). "
        f"{grid_words(found, perplexity)} The solid frame is the lowest cell, the dotted one what is saved."
    )
