"""Components of our own in the studio: the script and the style of each are the files of its name next to this one.

They draw in the theme's colours, and set the text of users as text only, never as markup.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import streamlit as st

HERE = Path(__file__).parent


def source(name: str) -> str:
    """The text of a file of this folder."""
    return (HERE / name).read_text(encoding="utf-8")


def component(name: str) -> Callable[..., Any]:
    """Declares a component that draws; it finds what all of them share (`parts.js`, `parts.css`) before its own."""
    css, js = (source(f"parts.{kind}") + source(f"{name}.{kind}") for kind in ("css", "js"))
    return st.components.v2.component(name, html='<div class="root"></div>', css=css, js=js)


def unseen_component(name: str) -> Callable[..., Any]:
    """Declares a component that draws nothing."""
    return st.components.v2.component(name, html="", js=source(f"{name}.js"))
