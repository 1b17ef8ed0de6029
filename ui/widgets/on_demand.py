"""Popovers and expanders that are first drawn when they are opened, and boxes that the keyboard can scroll."""

from __future__ import annotations

import html
from typing import Protocol

import streamlit as st
from streamlit.delta_generator import DeltaGenerator


class Box(Protocol):
    """A container of Streamlit that can be closed, made with a key and `on_change="rerun"`."""

    @property
    def open(self) -> bool | None:
        """Whether it is open; None without `on_change`."""

    def container(self, *, key: str) -> DeltaGenerator:
        """A container in it."""


def content_of(box: Box, key: str) -> DeltaGenerator | None:
    """Where to draw what the box with this key holds; None before its first opening. Then it stays, as what was typed.

    In studio.css this container has a height from the beginning: a popover chooses its side of the button by it.
    """
    content = box.container(key=f"on_demand.{key}")
    if box.open:
        st.session_state[f"{key}.was_opened"] = True
    return content if _was_opened(key) else None


def _was_opened(key: str) -> bool:
    return f"{key}.was_opened" in st.session_state


def scroll_box(content: str, label: str, max_pixels: int) -> None:
    """Shows HTML, which must be escaped where it is data, at most so high; `label` is what a screen reader says."""
    style = f"max-height:{max_pixels}px;overflow-y:auto"
    st.html(f'<div role="region" tabindex="0" aria-label="{html.escape(label)}" style="{style}">{content}</div>')
