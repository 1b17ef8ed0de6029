"""Saved views of a page: names for what is chosen on it."""

from __future__ import annotations

from urllib.parse import parse_qs, urlencode

import streamlit as st

from ui.present.pages import Page
from ui.present.text.formatting import plain
from ui.widgets.address import reopen
from ui.widgets.notices import explained, keep
from ui.widgets.rights import cannot_change
from workbench.answers.cards import ViewCard
from workbench.registry import views
from workbench.registry.database import reading, transaction


def show_views(page: Page) -> None:
    """A popover that saves what is chosen now, and opens and deletes what was saved. Call it when all is drawn."""
    with reading() as session:
        saved = views.list_views(session, f"/{page.address}")
    with st.popover(f"Views ({len(saved)})" if saved else "Views", icon=":material/bookmark:"):
        for view in saved:
            _show_view(view)
        if not saved:
            st.caption("A view is a name for the filters, the order and the experts that are chosen now.")
        _show_form(page)


def _show_view(view: ViewCard) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        query = parse_qs(view.address.partition("?")[2])
        st.button(plain(view.name), key=f"view.open.{view.name}", on_click=reopen, args=(query,))
        if st.button(
            "Delete",
            key=f"view.delete.{view.name}",
            type="tertiary",
            help=plain(f"Delete {view.name}"),
            disabled=cannot_change(),
        ):
            with explained():
                with transaction() as session:
                    views.delete_view(session, view.name)
                keep(f"The view {view.name} is deleted.")
                st.rerun()


def _show_form(page: Page) -> None:
    with st.form("view.new", clear_on_submit=True, border=False):
        name = st.text_input("Name of the view")
        if st.form_submit_button("Save this view", disabled=cannot_change()):
            with explained():
                with transaction() as session:
                    card = views.save_view(session, name, address_now(page))
                keep(f"The view {card.name} is saved.")
                st.rerun()


def address_now(page: Page) -> str:
    """The address of the page with all that is chosen on it, as a browser writes it."""
    query = urlencode({key: st.query_params.get_all(key) for key in st.query_params}, doseq=True)
    return f"/{page.address}" + (f"?{query}" if query else "")
