"""A long text in a box that the keyboard can scroll, which Streamlit's containers of a fixed height cannot be."""

from __future__ import annotations

import html

import streamlit as st


def scroll_box(content: str, label: str, max_pixels: int) -> None:
    """Shows HTML, which must be escaped where it is data, at most so high; `label` is what a screen reader says."""
    style = f"max-height:{max_pixels}px;overflow-y:auto"
    st.html(f'<div role="region" tabindex="0" aria-label="{html.escape(label)}" style="{style}">{content}</div>')
