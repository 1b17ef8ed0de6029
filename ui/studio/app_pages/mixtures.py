"""Mixtures: switch members, set weights, see the effect on perplexity at once, compare, save, calibrate, serve."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from engine.text.split_names import HeldOutSplit
from ui.present.charts.colours import read_looks
from ui.present.pages import MIXTURES
from ui.present.text.calibration import SINGLE_EXPERT, describe_calibration
from ui.studio.job_views.pending_jobs import empty_until_trained
from ui.studio.mixtures.calibration_view import show_calibration, show_temperature
from ui.studio.mixtures.effect_view import show_effect, show_modes
from ui.studio.mixtures.mixture_controls import choose, saved_request
from ui.studio.mixtures.mixture_edit import offer_saving, show_deletion, show_elsewhere, show_new_mixture
from ui.studio.mixtures.prior_editor import show_priors
from ui.studio.shared.examples import show_example
from ui.widgets.address import choose_one, choose_split
from ui.widgets.on_demand import content_of
from ui.widgets.page_head import show_head
from workbench.answers.cards import MixtureCard
from workbench.errors import NotFoundError
from workbench.registry import mixtures
from workbench.registry.database import reading
from workbench.specs.requests import MixtureRequest

_NOBODY = "none"
_PRIORS = "mixture.priors"


def show() -> None:
    """Draws the page."""
    with reading() as session:
        cards = {card.name: card for card in mixtures.most_useful_first(session)}
    if cards:
        _show_mixtures(cards)
    else:
        show_head(MIXTURES)
        empty_until_trained("There is no mixture yet.", "A DEMix model makes one of all its experts.")
        show_example(MIXTURES)
    show_new_mixture()


def _show_mixtures(cards: Mapping[str, MixtureCard]) -> None:
    _show_choice(cards)
    mixture, saved, split = _chosen(cards)
    choice: MixtureRequest = st.session_state["mixture.choice"]
    st.session_state["mixture.drawn"] = (mixture.name, split)
    if len(saved.active or ()) == 1:
        st.caption(SINGLE_EXPERT)
    else:
        title = "Next: calibrate the evidence" if describe_calibration(mixture) else "Calibrate the evidence"
        with st.container(border=True, key="calibration"):
            st.subheader(title, anchor=False)
            show_calibration(mixture, saved)
        with st.container(border=True, key="inference_modes"):
            st.subheader("Perplexity by inference mode: the lowest of each row is bold", anchor=False)
            show_modes(saved, split)
    priors = st.expander("Priors: save, estimate, apply", icon=":material/balance:", key=_PRIORS, on_change="rerun")
    if content := content_of(priors, _PRIORS):
        with content:
            show_priors(mixture, choice)
    show_temperature(mixture, saved)
    show_deletion(mixture)


@st.fragment
def _show_choice(cards: Mapping[str, MixtureCard]) -> None:
    """The first screen. A toggle draws only this part again; the choice is left in the session for the others."""
    right = show_head(MIXTURES)
    places = st.columns([3, 3, 2])
    with places[0]:
        name = choose_one(st.selectbox, "Mixture", list(cards), key="mixture")
    with places[1]:
        others = [_NOBODY, *(one for one in cards if one != name)]
        other = choose_one(st.selectbox, "Compare with", others, key="mixture.other")
    split = choose_split(places[2], "mixture.split", help="Which stored scores the perplexities come from.")
    if st.session_state.get("mixture.drawn", (name, split)) != (name, split):
        st.session_state.pop("mixture.drawn")
        st.rerun()  # what is below is of another mixture
    try:
        with reading() as session:  # not of the cards, which are of the page's last run: others may have saved since
            mixture = mixtures.get_mixture(session, name)
    except NotFoundError:
        st.rerun()
    saved = saved_request(mixture)
    controls, effect = st.columns([5, 8])
    looks = read_looks().among([member.expert for member in mixture.members])
    with controls, st.container(border=True, key="members"):
        choice = choose(mixture, looks)
    st.session_state["mixture.choice"] = choice
    with right:
        offer_saving(mixture, saved, choice)
    with effect, st.container(border=True, key="effect"):
        if choice.active:
            show_effect(mixture, choice, split, None if other == _NOBODY else saved_request(cards[other]), looks)
        else:
            st.warning("No expert is active. Switch on at least one.")
    with controls:
        show_elsewhere(saved, choice, split)


def _chosen(cards: Mapping[str, MixtureCard]) -> tuple[MixtureCard, MixtureRequest, HeldOutSplit]:
    mixture = cards[st.session_state["mixture"]]
    return mixture, saved_request(mixture), st.session_state["mixture.split"]


if __name__ == "__main__":
    show()
