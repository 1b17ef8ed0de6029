"""Enable and disable experts in the registry: a disabled expert takes part in no mixture."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from ui.present.text.formatting import pluralize
from ui.widgets.notices import explained, keep
from ui.widgets.rights import cannot_change
from workbench.answers.cards import ExpertCard
from workbench.registry import experts
from workbench.registry.database import transaction


def show_switch(card: ExpertCard) -> None:
    """The toggle of one expert; it takes effect at once, everywhere."""
    key = f"enabled_{card.id}"
    st.session_state[key] = card.enabled  # the registry is the truth: another screen may have switched it

    def switch() -> None:
        with explained():
            _set([card.name], bool(st.session_state[key]))

    help = "A disabled expert is used in no mixture and no generation, but stays in the registry."
    st.toggle("Enabled", key=key, on_change=switch, help=help, disabled=cannot_change())


def show_bulk_switches(cards: Sequence[ExpertCard]) -> None:
    """Buttons that switch all the chosen experts."""
    names = [card.name for card in cards]
    with st.container(horizontal=True):
        for label, wanted in (("Enable", True), ("Disable", False)):
            if st.button(f"{label} {pluralize(len(names), 'expert')}", key=f"bulk_{label}", disabled=cannot_change()):
                with explained():
                    _set(names, wanted)
                    keep(f"{pluralize(len(names), 'expert')} {'enabled' if wanted else 'disabled'}.")
                    st.rerun()


def _set(names: list[str], wanted: bool) -> None:
    with transaction() as session:
        experts.set_enabled(session, names, wanted)
