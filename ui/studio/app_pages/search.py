"""A search over the whole registry: hits by kind, each a link to the page that shows it."""

from __future__ import annotations

import streamlit as st

from ui.present.pages import SEARCH
from ui.present.search_hits import GROUP_TITLES, describe_rest, detail_of, icon_of, place_of
from ui.present.text.formatting import plain
from ui.widgets.address import write_text
from ui.widgets.notices import empty
from ui.widgets.page_head import show_head
from workbench.analysis.search import LONGEST_QUERY, search
from workbench.answers.search import SearchGroup
from workbench.registry.database import reading


def show() -> None:
    """Draws the page."""
    show_head(SEARCH)
    query = write_text(
        st.text_input,
        "Search the registry",
        key="q",
        placeholder="Words of a name, title, note, tag or alias, or the first digits of an id",
        max_chars=LONGEST_QUERY,
    )
    st.caption("The keys / and Ctrl+K open this page from every other.")
    if not query.strip():
        return
    with reading() as session:
        answer = search(session, query)
    if not answer.groups:
        empty(f"Nothing holds “{answer.query}”.", "Every word must occur: leave one out, or write only a part of it.")
    for group in answer.groups:
        _show_group(group)


def _show_group(group: SearchGroup) -> None:
    with st.container(border=True, key=f"hits_{group.kind}"):
        st.header(f"{GROUP_TITLES[group.kind]} ({group.total:,})", anchor=False)
        for hit in group.hits:
            page, chosen = place_of(group.kind, hit)
            with st.container(horizontal=True, vertical_alignment="center"):
                st.page_link(page.script, label=plain(hit.name), icon=icon_of(group.kind), query_params=chosen)
                st.caption(plain(detail_of(group.kind, hit)))
        if rest := describe_rest(group):
            st.caption(rest)


if __name__ == "__main__":
    show()
