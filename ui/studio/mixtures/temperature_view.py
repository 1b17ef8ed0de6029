"""The temperature of a gate of clusters that dev text proposes, and a button that saves it."""

from __future__ import annotations

import streamlit as st

from ui.present.charts.cluster_grid import temperature_words
from ui.present.text.formatting import plain
from ui.studio.mixtures.mixture_controls import reset
from ui.widgets.background import ask_scores
from ui.widgets.notices import explained, keep
from ui.widgets.rights import cannot_change
from workbench.answers.cards import MixtureCard
from workbench.questions.cluster_grid import ClusterGrid, ClusterGridRequest, TemperatureProposal
from workbench.registry import mixtures
from workbench.registry.database import transaction
from workbench.specs.gates import changed_gate, load_gate
from workbench.specs.requests import MixtureRequest


def show_temperature(mixture: MixtureCard, saved: MixtureRequest) -> None:
    """Offers a temperature from dev text; draws nothing for a gate that does not use clusters."""
    if "temperature" not in mixture.gate:
        return
    key = f"temperature.{mixture.id}"
    if st.button("Propose a temperature from dev text", key="temperature.start", icon=":material/tune:"):
        st.session_state[key] = True
    if st.session_state.get(key) and (grid := _fetch(saved)) and grid.proposed:
        _show(mixture, grid.proposed)


def _fetch(saved: MixtureRequest) -> ClusterGrid | None:
    question = ClusterGridRequest(mixture=saved.model, split="dev")
    return ask_scores("temperature", question, "Mixing the stored scores at every temperature", saved)


def _show(mixture: MixtureCard, proposed: TemperatureProposal) -> None:
    st.markdown(plain(temperature_words(proposed)))
    if proposed.perplexity is None or proposed.temperature == proposed.current:
        return
    if st.button("Save this temperature", key="temperature.save", type="primary", disabled=cannot_change()):
        with explained():
            gate = changed_gate(load_gate(mixture.gate), {"temperature": proposed.temperature})
            with transaction() as session:
                mixtures.set_gate(session, mixture.name, gate)
            reset(mixture)
            keep(f"{mixture.name} is saved with temperature {proposed.temperature:g}.")
            st.rerun()
