"""Popovers and expanders whose content is first drawn when they are opened: most never are, and all cost time."""

from __future__ import annotations

from typing import Protocol

import streamlit as st


class Box(Protocol):
    """A container of Streamlit that can be closed, made with a key and `on_change="rerun"`."""

    @property
    def open(self) -> bool | None:
        """Whether it is open; None without `on_change`."""


def is_needed(box: Box, key: str) -> bool:
    """Whether the content of the box with this key is drawn: from its first opening on, so that what is typed stays."""
    if box.open:
        st.session_state[_mark(key)] = True
    return _was_opened(key)


def _was_opened(key: str) -> bool:
    return _mark(key) in st.session_state


def _mark(key: str) -> str:
    return f"{key}.was_opened"
