"""What each page will hold, drawn while it is empty."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import streamlit as st

from ui.present.pages import Page
from ui.present.text.formatting import plain
from ui.widgets.notices import example

_BADGE = "Example: measured on another machine"


@cache
def _examples() -> dict[str, dict[str, Any]]:
    """By the address of a page."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def show_example(page: Page) -> None:
    """The example of what a page will hold."""
    shown = _examples()[page.address]
    with example(shown["title"], shown["about"], _BADGE):
        if numbers := shown.get("numbers"):
            for column, (label, value, meaning) in zip(st.columns(len(numbers)), numbers, strict=True):
                column.metric(label, value, border=True)
                column.caption(plain(meaning))
        names, *rows = shown["table"]
        st.table([dict(zip(names, row, strict=True)) for row in rows])
        st.caption(plain(shown["source"]))
