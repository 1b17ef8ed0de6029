"""The experts: search, open one, compare several, save views, import, enable and disable, delete."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from ui.present.next_steps import STEP_AFTER
from ui.present.pages import EXPERTS, TRAIN
from ui.studio.experts.comparison import show_comparison
from ui.studio.experts.enable_experts import show_bulk_switches
from ui.studio.experts.expert_card import show_expert
from ui.studio.experts.import_experts import show_import
from ui.studio.experts.registry_view import CARDS, CHOSEN, LINEAGE, OPEN, TABLE, read_registry, show_registry
from ui.studio.job_views.pending_jobs import empty_until
from ui.studio.shared.examples import show_example_experts
from ui.studio.shared.saved_views import show_views
from ui.widgets.address import choose_one, choose_some, write_text
from ui.widgets.page_head import show_head, show_next_step
from ui.widgets.split_choice import choose_split
from workbench.registry import experts
from workbench.registry.database import reading


def show() -> None:
    """Draws the page."""
    right = show_head(EXPERTS)
    with reading() as session:
        names = [name for _, name, _ in experts.list_states(session)]
    with right:
        views = st.container(width="content")
        show_import()
    if not names:
        empty_until(
            "train-joint", "There is no expert yet.", "Train a DEMix model: one for each domain.", TRAIN.script, "Train"
        )
        show_example_experts()
        return
    show_next_step(right, STEP_AFTER[EXPERTS])
    _show_experts(sorted(names))
    with views:
        show_views(EXPERTS)


def _show_experts(names: Sequence[str]) -> None:
    columns = st.columns([3, 4, 2, 3], vertical_alignment="bottom")
    search = write_text(
        columns[0].text_input, "Search", key="experts.search", placeholder="Names, tags, notes, aliases"
    )
    with columns[1]:
        chosen = _choose(names)
    split = choose_split(columns[2], "experts.split", help="Which stored scores perplexity and accuracy come from.")
    views = [CARDS, TABLE, LINEAGE]
    view = choose_one(columns[3].segmented_control, "View", views, default=CARDS, key="experts.view", required=True)
    if chosen and view != TABLE:
        st.button("All experts", icon=":material/arrow_back:", type="tertiary", on_click=_close)
        others = st.expander("Search and filter all experts", key="experts.others", on_change="rerun")
        if others.open:  # a registry of a thousand is read only where it is looked at
            with others:
                show_registry(read_registry(split), search, view)
    else:
        show_registry(read_registry(split), search, view)
    with reading() as session:
        there = [experts.get_expert(session, name) for name in chosen]
    if len(there) == 1:
        show_expert(there[0], split)
    elif there:
        show_bulk_switches(there)
        show_comparison(there, split)


def _choose(names: Sequence[str]) -> list[str]:
    wanted = st.session_state.pop(OPEN, None) or st.session_state.get(CHOSEN, [])
    kept = [name for name in wanted if name in names]
    if kept != st.session_state.get(CHOSEN):
        st.session_state[CHOSEN] = kept  # one of them has been deleted or renamed
    return choose_some(st.multiselect, "Experts", list(names), key=CHOSEN, placeholder="Open one, or compare several")


def _close() -> None:
    st.session_state[CHOSEN] = []


if __name__ == "__main__":
    show()
