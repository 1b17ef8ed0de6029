"""Labels of charts. Names are user data, and Plotly reads a little HTML in its labels."""

from __future__ import annotations

import html

_FULL = 300  # characters of a name where the mouse is: longer ones would leave the window


def label(name: object, limit: int = 40) -> str:
    """A name as Plotly shows it unchanged, shortened to `limit` characters."""
    return html.escape(shorten(str(name), limit), quote=False)


def full_label(name: object) -> str:
    """A name as Plotly shows it unchanged, for what it says where the mouse is."""
    return label(name, _FULL)


def shorten(text: str, limit: int) -> str:
    """The text, its middle left out where it is longer: names of one family differ at their end as often as before."""
    if len(text) <= limit:
        return text
    end = (limit - 1) // 2
    return f"{text[: limit - 1 - end]}…{text[len(text) - end :]}"
