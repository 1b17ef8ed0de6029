"""Perplexity of a cluster gate by temperature and top-k (C-BTM table 9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.config import PAPER_TEMPERATURE
from ui.present.charts.cells import add_frames, frame, new_heatmap
from ui.present.charts.chart import Chart, heat_scale
from workbench.formatting.number_format import percent
from workbench.formatting.number_format import perplexity as formatted
from workbench.questions.cluster_grid import ClusterGrid, TemperatureProposal

_SAME = 1e-3  # of the perplexity: a difference below it is none


def grid_picture(grid: ClusterGrid, perplexity: Sequence[Sequence[float]]) -> Chart:
    """Perplexities by temperature and top-k, marking the lowest cell, the paper's temperature and the saved cell."""
    temperatures, top_ks = grid.temperatures, grid.top_ks
    figure = new_heatmap(
        "experts at each token (top k)",
        "temperature",
        [_top_k_words(k, grid) for k in top_ks],
        [f"{t:g} (paper)" if t == PAPER_TEMPERATURE else f"{t:g}" for t in temperatures],
        z=perplexity,
        zmax=_ceiling(perplexity),
        colorscale=heat_scale(is_low_better=True),
        numbers="%{z:,.1f}",
        colorbar={"title": "perplexity"},
        hovertemplate="%{z:,.1f} per token<extra></extra>",
    )
    add_frames(figure, frame(*_best(perplexity)))
    if grid.saved.temperature in temperatures and grid.saved.top_k in top_ks:
        saved = temperatures.index(grid.saved.temperature), top_ks.index(grid.saved.top_k)
        add_frames(figure, frame(*saved, dash="dot"))
    return Chart(figure, _title(grid, perplexity), _words(grid, perplexity), grid_rows(grid, perplexity))


def grid_rows(grid: ClusterGrid, perplexity: Sequence[Sequence[float]]) -> list[dict[str, Any]]:
    """A row for each temperature, a column for each top-k."""
    return [
        {"temperature": temperature, **{f"top {k}": value for k, value in zip(grid.top_ks, row, strict=True)}}
        for temperature, row in zip(grid.temperatures, perplexity, strict=True)
    ]


def grid_words(grid: ClusterGrid, perplexity: Sequence[Sequence[float]]) -> str:
    """The lowest perplexity and where it is; whether temperature matters at all here."""
    row, column = _best(perplexity)
    temperature, k = grid.temperatures[row], grid.top_ks[column]
    lowest = f"Lowest at temperature {temperature:g} with top {k}: {formatted(perplexity[row][column])} per token."
    paper = perplexity[grid.temperatures.index(PAPER_TEMPERATURE)] if _has_paper(grid) else None
    if paper is None:
        return lowest
    change = (min(paper) / perplexity[row][column] - 1) * 100
    beside = "as good as that" if change < _SAME * 100 else f"{percent(change)} above it"
    return f"{lowest} The paper's temperature of {PAPER_TEMPERATURE} is {beside} with its best top-k."


def temperature_words(proposed: TemperatureProposal) -> str:
    """The temperature that dev text proposes beside the default, and the command that sets it or makes scores."""
    if proposed.perplexity is None or proposed.default_perplexity is None:
        return (
            f"Proposed temperature: {proposed.default:g}, the default, since the dev text of the clustered domains is "
            f"not scored. Score it with: {proposed.command}"
        )
    best = (
        f"Proposed temperature: {proposed.temperature:g}, with perplexity {formatted(proposed.perplexity)} on dev text"
    )
    if proposed.temperature == proposed.default:
        beside = f"{best}; it is the default."
    else:
        beside = f"{best}; the default {proposed.default:g} has {formatted(proposed.default_perplexity)}."
    return f"{beside} {'It is set.' if proposed.temperature == proposed.current else f'Set it: {proposed.command}'}"


def _has_paper(grid: ClusterGrid) -> bool:
    return PAPER_TEMPERATURE in grid.temperatures


def _best(perplexity: Sequence[Sequence[float]]) -> tuple[int, int]:
    cells = [(row, column) for row, values in enumerate(perplexity) for column in range(len(values))]
    return min(cells, key=lambda cell: perplexity[cell[0]][cell[1]])


def _top_k_words(k: int, grid: ClusterGrid) -> str:
    return f"all {k}" if k == len(grid.experts) else str(k)


def _ceiling(perplexity: Sequence[Sequence[float]]) -> float:
    # One far cell must not wash out all the others.
    values = sorted(value for row in perplexity for value in row)
    return max(values[int(0.9 * (len(values) - 1))], values[0] * 1.001)


def _title(grid: ClusterGrid, perplexity: Sequence[Sequence[float]]) -> str:
    columns = list(zip(*perplexity, strict=True))
    best = [column.index(min(column)) for column in columns[1:]]  # with one expert temperature changes nothing
    inner = sum(0 < place < len(grid.temperatures) - 1 for place in best)
    if best and inner == len(best):
        return "Perplexity by temperature and top-k: in each column the lowest cell lies between the ends"
    return "Perplexity by temperature and top-k: an end of a column is lowest somewhere, so try values beyond it"


def _words(grid: ClusterGrid, perplexity: Sequence[Sequence[float]]) -> str:
    return (
        "Heatmap of perplexity by temperature (rows) and experts at each token (columns). "
        f"{grid_words(grid, perplexity)} The solid frame is the lowest cell, the dotted one is the saved setting."
    )
