"""The change of perplexity by the decay and the power of a posterior's evidence."""

from __future__ import annotations

from collections.abc import Sequence

from engine.mixing.evidence import EvidenceRule
from ui.present.charts.cells import add_frames, frame, new_heatmap
from ui.present.charts.chart import Chart
from ui.present.text.calibration import how_to_read, setting_words, surface_rows, verdict_words
from workbench.answers.posteriors import EvidenceCalibration

_NAMES = {0.0: "0 (last token)", 1.0: "1 (prefix)"}


def calibration_picture(answer: EvidenceCalibration) -> Chart:
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
    add_frames(figure, frame(*_lowest(answer.change)))
    if answer.now.decay in answer.decays and answer.now.power in answer.powers:
        now = answer.decays.index(answer.now.decay), answer.powers.index(answer.now.power)
        add_frames(figure, frame(*now, dash="dot"))
    title = f"Change of perplexity by decay and power: {_where(answer)}"
    frames = "The solid frame is the lowest cell, the dotted one the setting of now."
    return Chart(figure, title, f"{how_to_read(answer)} {verdict_words(answer)} {frames}", surface_rows(answer))


def _where(answer: EvidenceCalibration) -> str:
    row, column = _lowest(answer.change)
    lowest = EvidenceRule(answer.decays[row], answer.powers[column])
    return f"lowest at {setting_words(lowest)}" if lowest != answer.now else "the setting of now is lowest"


def _lowest(change: Sequence[Sequence[float]]) -> tuple[int, int]:
    cells = [(row, column) for row, values in enumerate(change) for column in range(len(values))]
    return min(cells, key=lambda cell: change[cell[0]][cell[1]])


def _reach(change: Sequence[Sequence[float]]) -> float:
    """The end of the colours: a far cell must not wash out the others."""
    values = [value for row in change for value in row]
    return max(1.0, min(max(abs(value) for value in values), 2 * abs(min(values)) or 1.0))
