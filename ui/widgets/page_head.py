"""The head of a page: its entry as title, a link to the help, the next step at the right, and the strip of links."""

from __future__ import annotations

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from ui.addresses import help_path
from ui.pages.catalog import all_pages, pages_of
from ui.present.next_steps import Suggestion
from ui.present.pages import Page


def show_entries(page: Page) -> None:
    """The entries of the navigation as rows of links, which studio.css shows on narrow screens only.

    There Streamlit puts its own into a drawer, which stays open over the page that was chosen.
    """
    with st.container(horizontal=True, key="entries"):
        for entry_page in (entry_page for entry_page in all_pages() if entry_page is pages_of(entry_page.entry)[0]):
            with st.container(width="content", key="entry_here" if entry_page.entry == page.entry else None):
                st.page_link(entry_page.script, label=entry_page.entry, icon="")


def show_head(page: Page) -> DeltaGenerator:
    """Title, link to the help, and strip; gives the container at the right of them, for the page's primary button."""
    with st.container(horizontal=True, vertical_alignment="center", key="head"):
        st.title(page.entry, anchor=False, width="content")
        st.markdown(f"[Help]({help_path(page.document)})", width="content")
        right = st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="center")
    pages = pages_of(page.entry)
    if len(pages) > 1:
        with st.container(horizontal=True, key="strip"):
            for sibling in pages:
                with st.container(width="content", key="strip_here" if sibling is page else None):
                    st.page_link(sibling.script, label=sibling.title, icon="")
    return right


def show_next_step(right: DeltaGenerator, step: Suggestion) -> None:
    """The page's primary button where the next step is on another page: a link, so that it opens in a new tab too."""
    with right.container(width="content", key="next_step"):
        st.page_link(step.page.script, label=step.label, icon="", help=step.sentence, query_params=step.query or None)
