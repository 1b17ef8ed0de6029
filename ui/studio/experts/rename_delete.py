"""Renaming an expert, and deleting it after showing what depends on it."""

from __future__ import annotations

import streamlit as st

from ui.present.text.formatting import listed, plain, pluralize
from ui.widgets.notices import explained, keep
from ui.widgets.rights import cannot_change
from workbench.analysis import perplexity_tables
from workbench.answers.cards import ExpertCard
from workbench.questions import removal
from workbench.registry import experts, mixtures
from workbench.registry.database import reading, transaction


def show_end(card: ExpertCard) -> None:
    """A form for another name, and the way to deletion."""
    _show_renaming(card)
    st.divider()
    with reading() as session:
        users = experts.users_of(session, card.name)
    mixed_in = users.pop("mixture")
    if needed := [f"{what} {listed(sorted(set(names)))}" for what, names in users.items() if names]:
        st.warning(plain(f"It cannot be deleted: it is needed by {'; '.join(needed)}. Delete what needs it first."))
    elif mixed_in:
        _show_member_removal(card)
    else:
        _show_deletion(card)


def _show_renaming(card: ExpertCard) -> None:
    with st.form(f"rename_{card.id}"):
        name = st.text_input("New name", card.name)
        if st.form_submit_button("Rename", disabled=cannot_change()):
            with transaction() as session:
                renamed = experts.rename(session, card.name, name)
            st.session_state["experts.open"] = [renamed.name]
            keep(f"It is called {renamed.name} now.")
            st.rerun()


def _show_member_removal(card: ExpertCard) -> None:
    st.warning(plain(f"It cannot be deleted while it is in {listed(card.mixtures)}. Remove it from there first."))
    if not _certificates(card):
        st.caption("To certify its removal, use the tab Removal above while it is still in a mixture.")
    for name in card.mixtures:
        if st.button(f"Remove from {plain(name)}", key=f"out_{card.id}_{name}", disabled=cannot_change()):
            with explained():
                with transaction() as session:
                    mixtures.remove_member(session, name, card.name)
                keep(f"{card.name} is no longer in {name}.")
                st.rerun()


def _show_deletion(card: ExpertCard) -> None:
    with reading() as session:
        scored = [one.domain for one in perplexity_tables.list_evaluations(session, expert=card.name)]
    lost = f"its weights and its scores on {listed(scored)}" if scored else "its weights"
    st.markdown(plain(f"Nothing depends on it. Deleting removes {lost}; this cannot be undone."))
    stays = _certificates(card)
    none = "Its removal has not been certified; that requires a mixture that contains it."
    st.caption(f"{pluralize(stays, 'certificate')} of its removal will stay." if stays else none)
    sure = st.checkbox("I want to delete it for good", key=f"sure_{card.id}")
    if st.button("Delete", key=f"delete_{card.id}", type="primary", disabled=cannot_change() or not sure):
        with explained():
            _delete(card.name)


def _certificates(card: ExpertCard) -> int:
    with reading() as session:
        return len(removal.removal_reports(session, card.name))


def _delete(name: str) -> None:
    with transaction() as session:
        experts.delete_expert(session, name)
    keep(f"{name} is deleted.")
    st.rerun()
