"""Eight colours that colour-blind people can tell apart, the same on a light and on a dark page, and what tells more
than eight things apart: dashes of lines, patterns of areas, and marks of two characters.

docs/design/README.md says how they were found; docs/design/draw.py measures them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

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
    place, turn = number % len(COLOURS), number // len(COLOURS) % len(DASHES)
    return Look(COLOURS[place], LETTERS[place], DASHES[turn], PATTERNS[turn], mark, number)


def free_number(enabled: Collection[int], used: Collection[int]) -> int:
    """The smallest number of a colour that no enabled expert has, else the smallest that no expert ever had."""
    for number in range(len(COLOURS)):
        if number not in enabled:
            return number
    return next(number for number in range(len(COLOURS), len(COLOURS) + len(used) + 1) if number not in used)
