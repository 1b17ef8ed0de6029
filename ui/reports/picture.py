"""A report as a picture to share: an SVG of 1200 x 630 pixels, as links are previewed, without a script or a font."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from unicodedata import east_asian_width
from xml.sax.saxutils import escape

from workbench.formatting.number_format import shorten

WIDTH, HEIGHT = 1200, 630
_MARGIN, _TITLE, _CLAIM, _WORDS = 60, 44, 56, 25  # pixels: the margin, and the sizes of letters
_GOOD, _BAD, _INK, _PALE, _PAPER = "#0f7b4f", "#b42318", "#16202c", "#54616f", "#ffffff"
_TITLE_LETTERS, _CLAIM_LETTERS, _WORDS_LETTERS, _NOTE_LETTERS = 44, 16, 35, 84  # as many as fit in a line
_LETTER = 0.68  # of a letter's height: the widest of the usual fonts; longer lines are drawn narrower
_MOST_CLAIMS, _CLAIM_HEIGHT = 3, 106


@dataclass(frozen=True)
class Claim:
    """A result in large letters (`−37.1 %`) and what it is of."""

    figure: str
    words: str


@dataclass(frozen=True)
class Picture:
    """What the picture of a report says; `sentence` says the same in text that a person can paste."""

    title: str
    holds: bool
    claims: Sequence[Claim]  # three at most are drawn
    note: str  # where the numbers come from
    sentence: str


def draw_picture(picture: Picture, made: str, command: str) -> str:
    """The SVG; `made` is when, `command` what prints the report with all its numbers."""
    colour = _GOOD if picture.holds else _BAD
    below = HEIGHT - _MARGIN
    parts = [
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{_PAPER}"/>',
        f'<rect width="14" height="{HEIGHT}" fill="{colour}"/>',
        _text(_MARGIN, 62, 24, colour, "CERTIFIED" if picture.holds else "NOT CERTIFIED", bold=True),
        _text(_MARGIN, 122, _TITLE, _INK, shorten(picture.title, _TITLE_LETTERS), bold=True),
        *_draw_claims(picture.claims[:_MOST_CLAIMS], colour),
        *(
            _text(_MARGIN, below - 72 + 28 * number, 21, _PALE, line)
            for number, line in enumerate(textwrap.wrap(picture.note, _NOTE_LETTERS)[:2])
        ),
        _text(_MARGIN, below + 10, 21, _PALE, shorten(f"Expert Workbench · {made} · {command}", _NOTE_LETTERS)),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" font-family="system-ui, sans-serif"><title>{escape(picture.sentence)}</title>'
        f"{''.join(parts)}</svg>"
    )


def _draw_claims(claims: Sequence[Claim], colour: str) -> Iterator[str]:
    for number, claim in enumerate(claims):
        base = 222 + _CLAIM_HEIGHT * number
        yield _text(_MARGIN, base, _CLAIM, colour, shorten(claim.figure, _CLAIM_LETTERS), bold=True)
        lines = textwrap.wrap(claim.words, _WORDS_LETTERS, max_lines=3 if len(claims) > 1 else 8, placeholder=" …")
        first = base - 8 - 16 * (min(len(lines), 3) - 1)
        for row, line in enumerate(lines):
            yield _text(WIDTH // 2 - 20, first + 32 * row, _WORDS, _INK, line)


def _text(x: float, y: float, size: int, colour: str, text: str, *, bold: bool = False) -> str:
    weight = ' font-weight="700"' if bold else ""
    letters = sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text)
    most = (WIDTH // 2 - 20 if size == _CLAIM else WIDTH) - x - 20
    fit = f' textLength="{most:g}" lengthAdjust="spacingAndGlyphs"' if letters * _LETTER * size > most else ""
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{colour}"{weight}{fit}>{escape(text)}</text>'
