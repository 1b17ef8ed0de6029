"""Colours: of experts, of baselines, and of ratios."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from workbench.formatting.number_format import ratio_number

COLOURS = ("#3c90fc", "#cc0084", "#9c9000", "#308454", "#6054e4", "#d86c78", "#906018", "#b478b4")
LETTERS = ("#000000", "#ffffff", "#000000", "#ffffff", "#ffffff", "#000000", "#ffffff", "#000000")  # on each of them
GREY = "#8a867f"  # of baselines, and of what has no colour of its own
DASHES = ("solid", "8px 4px", "2px 4px", "8px 3px 2px 3px")
PATTERNS = ("", "/", ".", "x")
BASELINE_DASH, PARENT_DASH = "6px 4px", "2px 4px"


@dataclass(frozen=True)
class Look:
    """How an expert or a domain is drawn. `number` is None, and `mark` empty, where it has no colour of its own."""

    colour: str = GREY
    letters: str = "#000000"  # the colour of letters on it
    dash: str = DASHES[0]  # of its lines
    pattern: str = PATTERNS[0]  # of its areas
    mark: str = ""
    number: int | None = None

    def tint(self, share: float) -> str:
        """The colour at 8 % for a share of 0 to 30 % for a share of 1, as `#rrggbbaa`: text on it stays readable."""
        return f"{self.colour}{round(255 * (0.08 + 0.22 * min(1.0, max(0.0, share)))):02x}"


def look_of(number: int, mark: str = "") -> Look:
    """The look that a number from 0 stands for: eight colours, then the same with another dash and pattern."""
    index, turn = number % len(COLOURS), number // len(COLOURS) % len(DASHES)
    return Look(COLOURS[index], LETTERS[index], DASHES[turn], PATTERNS[turn], mark, number)


def free_number(enabled: Collection[int], used: Collection[int]) -> int:
    """The smallest number of a colour that no enabled expert has, else the smallest that no expert ever had."""
    for number in range(len(COLOURS)):
        if number not in enabled:
            return number
    return next(number for number in range(len(COLOURS), len(COLOURS) + len(used) + 1) if number not in used)


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
