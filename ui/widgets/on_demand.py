"""Popovers and expanders whose content is first drawn when they are opened: most never are, and all cost time."""

from __future__ import annotations

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
        st.session_state[_mark(key)] = True
    return content if _was_opened(key) else None


def _was_opened(key: str) -> bool:
    return _mark(key) in st.session_state


def _mark(key: str) -> str:
    return f"{key}.was_opened"
