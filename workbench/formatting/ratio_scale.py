"""Ratios as colours on a logarithmic scale, for pages and reports: each doubling is the same step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from workbench.formatting.number_format import ratio_number

Cells = Sequence[Sequence[float | None]]
_MOST_TICKS = 7


def logs(ratios: Cells) -> list[list[float | None]]:
    """The natural logarithm of each ratio (above 0); None stays None."""
    return [[None if ratio is None else math.log(ratio) for ratio in row] for row in ratios]


def as_text(ratios: Cells) -> list[list[str]]:
    """The text of each cell; empty for None."""
    return [["" if ratio is None else ratio_number(ratio) for ratio in row] for row in ratios]


@dataclass(frozen=True)
class ColourBar:
    """The fields of Plotly's colour bar that are set."""

    title: str
    tickvals: list[float]
    ticktext: list[str]


def colour_bar(low: float, high: float) -> ColourBar:
    """Plotly's colour bar of such logarithms, whose ticks are ratios: round ones, where at least two are in sight."""
    ticks = _round_ratios(low, high)
    return ColourBar("ratio", [math.log(tick) for tick in ticks], [f"{tick:.3g}" for tick in ticks])


def _round_ratios(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1.0, 2.0, 5.0), (1.0,)):
        ticks = [digit * 10.0**power for power in powers for digit in digits]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if 2 <= len(ticks) <= _MOST_TICKS:
            return ticks
    return [low * (high / low) ** (step / 4) for step in range(5)]
