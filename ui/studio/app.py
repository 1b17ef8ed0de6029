"""The studio: `streamlit run ui/studio/app.py`. It reads the registry and submits jobs; it holds no weights."""

from __future__ import annotations

from pathlib import Path

import pandas  # noqa: F401  # imported before any page draws: Plotly would take it half-initialized while another page imports it
import streamlit as st
from streamlit import net_util

from ui.present.pages import OVERVIEW, PAGES
from ui.widgets.notices import nothing_hidden, show_kept

# A file of our own: a named icon or an emoji would be fetched from somebody else's server.
ICON = Path(__file__).parent / ".streamlit" / "icon.svg"
# Streamlit marks the focused page by a pale grey alone.
FOCUS = "<style>[data-testid='stSidebarNavLink']:focus-visible { outline: 2px solid currentColor; }</style>"


def main() -> None:
    """Draws the page that the address names, with the navigation in the sidebar."""
    st.set_page_config(page_title="Expert Workbench", page_icon=str(ICON), layout="wide")
    _stay_silent()
    st.html(FOCUS)
    page = st.navigation(_sections())
    with nothing_hidden():
        show_kept()
        page.run()


def _sections() -> dict[str, list[st.Page]]:
    sections: dict[str, list[st.Page]] = {}
    for page in PAGES:
        st_page = st.Page(
            page.script, title=page.title, icon=page.icon, url_path=page.address, default=page is OVERVIEW
        )
        sections.setdefault(page.section, []).append(st_page)
    return sections


def _stay_silent() -> None:
    # Before Streamlit turns a foreign origin away, it asks amazonaws.com for this machine's address. Nothing
    # here calls home: an answer that no origin can equal ends the question.
    net_util._external_ip = net_util._external_ip or "(not asked)"


if __name__ == "__main__":
    main()
