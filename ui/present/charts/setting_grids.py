"""Perplexity by settings of a gate: temperature and top-k of clusters (C-BTM table 9), evidence's decay and power."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from engine.config import PAPER_TEMPERATURE
from engine.mixing.evidence import EvidenceRule
from ui.present.charts.heatmap import add_frames, frame, new_heatmap
from ui.present.text.posteriors import describe_verdict, how_to_read, setting_text, surface_rows
from workbench.answers.posteriors import EvidenceCalibration
from workbench.formatting.chart_template import CaptionedChart, heat_scale
from workbench.formatting.number_format import percent
from workbench.formatting.number_format import perplexity as formatted
from workbench.questions.cluster_grid import ClusterGrid, TemperatureProposal

_SAME = 1e-3  # of the perplexity: a difference below it is none


def grid_picture(grid: ClusterGrid, perplexity: Sequence[Sequence[float]]) -> CaptionedChart:
    """Perplexities by temperature and top-k, marking the lowest cell, the paper's temperature and the saved cell."""
    temperatures, top_ks = grid.temperatures, grid.top_ks
    figure = new_heatmap(
        "experts at each token (top k)",
        "temperature",
        [f"all {k}" if k == len(grid.experts) else str(k) for k in top_ks],
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
    return CaptionedChart(figure, _title(grid, perplexity), _words(grid, perplexity), grid_rows(grid, perplexity))


def grid_rows(grid: ClusterGrid, perplexity: Sequence[Sequence[float]]) -> list[dict[str, Any]]:
    """A row for each temperature, a column for each top-k."""
    return [
        {"temperature": temperature, **{f"top {k}": value for k, value in zip(grid.top_ks, row, strict=True)}}
        for temperature, row in zip(grid.temperatures, perplexity, strict=True)
    ]


def describe_grid(grid: ClusterGrid, perplexity: Sequence[Sequence[float]]) -> str:
    """The lowest perplexity and where it is; whether temperature matters at all here."""
    row, column = _best(perplexity)
    temperature, k = grid.temperatures[row], grid.top_ks[column]
    lowest = f"Lowest at temperature {temperature:g} with top {k}: {formatted(perplexity[row][column])} per token."
    if PAPER_TEMPERATURE not in grid.temperatures:
        return lowest
    paper = perplexity[grid.temperatures.index(PAPER_TEMPERATURE)]
    change = (min(paper) / perplexity[row][column] - 1) * 100
    beside = "as good as that" if change < _SAME * 100 else f"{percent(change)} above it"
    return f"{lowest} The paper's temperature of {PAPER_TEMPERATURE} is {beside} with its best top-k."


def describe_temperature(proposed: TemperatureProposal) -> str:
    """The temperature that dev text proposes, the default, and the command that sets it or makes scores."""
    if proposed.perplexity is None or proposed.default_perplexity is None:
        return (
            f"Proposed temperature: {proposed.default:g}, the default, since the dev text of the clustered domains is "
            f"not scored. Score it with: {proposed.command}"
        )
    best = (
        f"Proposed temperature: {proposed.temperature:g}, with perplexity {formatted(proposed.perplexity)} on dev text"
    )
    if proposed.temperature == proposed.default:
        result = f"{best}; it is the default."
    else:
        result = f"{best}; the default {proposed.default:g} has {formatted(proposed.default_perplexity)}."
    return f"{result} {'It is set.' if proposed.temperature == proposed.current else f'Set it: {proposed.command}'}"


def _best(cells: Sequence[Sequence[float]]) -> tuple[int, int]:
    return min(product(range(len(cells)), range(len(cells[0]))), key=lambda at: cells[at[0]][at[1]])


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
        f"{describe_grid(grid, perplexity)} The solid frame is the lowest cell, the dotted one is the saved setting."
    )


_NAMES = {0.0: "0 (last token)", 1.0: "1 (prefix)"}


def calibration_picture(answer: EvidenceCalibration) -> CaptionedChart:
    """Changes by decay (rows) and power (columns), with frames around the lowest cell and the setting of now."""
    figure = new_heatmap(
        "power of the evidence (paper: 1)",
        "decay at each token",
        [f"{power:g}" for power in answer.powers],
        [_NAMES.get(decay, f"{decay:g}") for decay in answer.decays],
        z=answer.change,
        zmin=-_reach(answer.change),
        zmax=_reach(answer.change),
        colorscale="RdBu_r",
        numbers="%{z:.1f}",
        colorbar={"title": "change of perplexity (%)"},
        hovertemplate="%{z:+.1f} %<extra></extra>",
    )
    add_frames(figure, frame(*_best(answer.change)))
    if answer.now.decay in answer.decays and answer.now.power in answer.powers:
        now = answer.decays.index(answer.now.decay), answer.powers.index(answer.now.power)
        add_frames(figure, frame(*now, dash="dot"))
    title = f"Change of perplexity by decay and power: {_where(answer)}"
    frames = "The solid frame is the lowest cell, the dotted one the setting of now."
    return CaptionedChart(
        figure, title, f"{how_to_read(answer)} {describe_verdict(answer)} {frames}", surface_rows(answer)
    )


def _where(answer: EvidenceCalibration) -> str:
    row, column = _best(answer.change)
    lowest = EvidenceRule(answer.decays[row], answer.powers[column])
    return f"lowest at {setting_text(lowest)}" if lowest != answer.now else "the setting of now is lowest"


def _reach(change: Sequence[Sequence[float]]) -> float:
    """The end of the colours: a far cell must not wash out the others."""
    values = [value for row in change for value in row]
    return max(1.0, min(max(abs(value) for value in values), 2 * abs(min(values)) or 1.0))
