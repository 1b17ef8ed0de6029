"""Numbers with their units and names made safe, as text for a screen."""

from __future__ import annotations

import re
import time

from workbench.formatting.number_format import amount
from workbench.formatting.number_format import listed as listed
from workbench.formatting.number_format import pluralize as pluralize

# Addresses become links even when every sign in them is escaped, unless an invisible sign cuts them.
_LINK = re.compile(r"https?:|www|\w@", re.IGNORECASE)
_WORD_JOINER = "\u2060"
_PUNCTUATION = re.compile(r"([!-.:-@\[-`{-~])")  # but “/”, which needs none and would be read out in names


def plain(text: object) -> str:
    """Text that Markdown shows as it stands: names are user data and must not become links or HTML."""
    return _escape(str(text)).strip()


def _escape(text: str) -> str:
    line = _LINK.sub(lambda match: match[0] + _WORD_JOINER, re.sub(r"\s+", " ", text))
    return _PUNCTUATION.sub(r"\\\1", line)


def plain_with_code(text: str) -> str:
    """The same for a sentence of ours about user data: what stands between backticks is shown as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # a backtick of the data itself
        return plain(text)
    return "".join(f"`{part}`" if place % 2 else _escape(part) for place, part in enumerate(parts)).strip()


def newest_of(shown: int, there: int, thing: str) -> str:
    """Says that a list is cut: `The newest 200 of 1,234 jobs.`; empty where it is whole."""
    return f"The newest {shown:,} of {pluralize(there, thing)}." if shown < there else ""


def size(num_bytes: float) -> str:
    """Bytes in the unit a person would choose: `812 B`, `1.4 MB`."""
    return amount(num_bytes, "B")


def duration(seconds: float, *, to_minutes: bool = False) -> str:
    """Seconds in the unit a person would choose: `8 s`, `3 min 20 s`, `2 h 5 min`.

    `to_minutes` is for estimates: never `0 s`, and from 90 seconds on no seconds.
    """
    rounded = max(1 if to_minutes else 0, round(seconds))
    if to_minutes and rounded >= 90:
        minutes = round(seconds / 60)
        return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
    if rounded < 60:
        return f"{rounded} s"
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60} s"
    return f"{rounded // 3600} h {rounded % 3600 // 60} min"


def moment(seconds: float) -> str:
    """A short time: `37 ms`, and from a second on `3.6 s`."""
    return f"{seconds * 1000:.0f} ms" if seconds < 0.9995 else f"{seconds:,.1f} s"


def ago(at: float, now: float | None = None) -> str:
    """How long ago, in one unit: `just now`, `5 min ago`, `3 days ago`."""
    seconds = (time.time() if now is None else now) - at
    if seconds < 10:
        return "just now"
    for length, unit in ((86400, "day"), (3600, "h"), (60, "min")):
        if seconds >= length:
            number = int(seconds // length)
            return f"{number} {unit}{'s' if unit == 'day' and number > 1 else ''} ago"
    return f"{int(seconds)} s ago"


def clock(at: float) -> str:
    """A time of this machine, `2026-03-01 14:05:09`."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def parameters_text(num_parameters: int | None) -> str:
    """Parameters, `812 K`, `1.3 M` or `1.1 B`; None is not known."""
    return "not known" if num_parameters is None else amount(num_parameters)


def short(sha256: str) -> str:
    """The first twelve digits of a hash."""
    return sha256[:12]
