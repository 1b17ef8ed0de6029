"""The frame around an example: what a page will hold, while it holds nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from ui.present.text.formatting import plain

INVENTED = "Example: numbers are invented"


@contextmanager
def example(title: str, about: str, badge: str = INVENTED) -> Iterator[None]:
    """A dashed frame (studio.css) with a badge. Nothing inside may be downloaded or clicked: it is nobody's result."""
    with st.container(border=True, key="example"):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.header(plain(f"Example: {title}"), anchor=False, width="content")
            st.space("stretch")
            st.badge(badge, color="orange")
        st.caption(plain(about))
        yield
