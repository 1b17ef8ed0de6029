"""The studio: `streamlit run ui/studio/app.py`. It reads the registry and submits jobs; it holds no weights."""

from __future__ import annotations

from pathlib import Path

import pandas  # noqa: F401  # imported before any page draws: Plotly would take it half-initialized while another page imports it
import streamlit as st
from streamlit import net_util

from ui.pages.catalog import all_pages, pages_of
from ui.present.pages import OVERVIEW, Page
from ui.present.text.formatting import plain
from ui.studio.job_views.notifications import watch_ends
from ui.widgets import address
from ui.widgets.elements.components import open_search_by_key, watch_connection
from ui.widgets.notices import nothing_hidden, show_kept
from ui.widgets.page_head import show_entries
from workbench.access.actor import Role, current_actor

# Files of our own: a named icon or an emoji would be fetched from somebody else's server.
ICON = Path(__file__).parent / ".streamlit" / "icon.svg"
STYLE = ICON.with_name("studio.css")
BRAND = "Expert Workbench"
# Streamlit marks an entry of the navigation only on the entry's first page.
_HERE = "<style>[data-testid$='NavLink'][href$='/{address}'] {{ background: var(--chosen); font-weight: 600; }}</style>"


def main() -> None:
    """Draws the page that the address names, below the navigation."""
    pages = {_st_page(page): page for page in all_pages()}
    here = st.navigation(list(pages), position="top")
    page = next(page for st_page, page in pages.items() if st_page == here)
    st.set_page_config(page_title=f"{page.title} · {BRAND}", page_icon=str(ICON), layout="wide")
    # Before Streamlit turns a foreign origin away, it asks amazonaws.com for this machine's address. Nothing
    # here calls home: an answer that no origin can equal ends the question.
    net_util._external_ip = net_util._external_ip or "(not asked)"
    st.logo(str(ICON), size="large")
    st.html(STYLE)
    watch_connection()
    open_search_by_key(page)
    watch_ends()
    if page is not pages_of(page.entry)[0]:
        st.html(_HERE.format(address=pages_of(page.entry)[0].address))
    show_entries(page)
    address.open_page(page.address)
    with address.one_entry(), nothing_hidden():
        show_kept()
        _show_role()
        here.run()


def _show_role() -> None:
    """Who is logged in, for users whose changes are refused."""
    actor = current_actor()
    if actor.role is not None and actor.role < Role.EDITOR:
        st.caption(plain(f"You are logged in as {actor.name}, with the role {actor.role.title}: changes are refused."))


def _st_page(page: Page) -> st.Page:
    """A page of an entry that is not its first is reached by the strip of links under the title."""
    is_first = page is pages_of(page.entry)[0]
    return st.Page(
        page.script,
        title=page.entry if is_first else page.title,
        url_path=page.address,
        default=page is OVERVIEW,
        visibility="visible" if is_first else "hidden",
    )


if __name__ == "__main__":
    main()
