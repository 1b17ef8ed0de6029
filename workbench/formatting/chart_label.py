"""Labels of charts. Names are user data, and Plotly reads a little HTML in its labels."""

from __future__ import annotations

import html


def label(name: object, limit: int = 40) -> str:
    """A name as Plotly shows it unchanged, cut to `limit` characters."""
    text = str(name)
    return html.escape(text if len(text) <= limit else text[: limit - 1] + "…", quote=False)
