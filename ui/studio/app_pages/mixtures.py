"""Mixtures: switch members, set weights, see the effect on perplexity at once, compare, save, calibrate, serve."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from engine.config import PAPER_BLOCKS
from ui.client import Client
from ui.present.charts.colours import read_looks
from ui.present.pages import MIXTURES
from ui.present.text.formatting import plain, pluralize
from ui.present.text.posteriors import SINGLE_EXPERT, describe_calibration, evidence_text
from ui.studio.job_views.pending_jobs import empty_until_trained
from ui.studio.mixtures.effect_view import show_effect, show_modes
from ui.studio.mixtures.mixture_controls import choose, saved_request, set_weights
from ui.studio.mixtures.mixture_edit import (
    is_calibrating,
    offer_saving,
    show_calibration,
    show_deletion,
    show_elsewhere,
    show_new_mixture,
    show_temperature,
)
from ui.studio.shared.examples import show_example
from ui.widgets.address import choose_one, choose_split, fragment
from ui.widgets.charts_and_tables import show_table
from ui.widgets.fields import draw_number
from ui.widgets.notices import apply, cannot_change, explain_problems, keep
from ui.widgets.on_demand import content_of
from ui.widgets.page_head import show_head
from workbench.answers.cards import GivenByHand, MixtureCard, PriorCard
from workbench.answers.posteriors import PriorSource
from workbench.errors import NotFoundError
from workbench.registry import corpora, mixtures, priors
from workbench.registry.database import reading
from workbench.settings import get_settings
from workbench.specs.requests import MixtureRequest


def show_priors(mixture: MixtureCard, choice: MixtureRequest) -> None:
    """Stored priors, with buttons to apply, save and estimate one."""
    with reading() as session:
        cards = priors.list_priors(session)
        domains = [card.name for card in corpora.list_domains(session)]
    if cards:
        _show_stored(mixture, cards)
    else:
        st.caption("No prior is stored yet. Save the weights above as a prior, or estimate one on held-out text.")
    keeping, estimating = st.columns(2, gap="large")
    with keeping:
        _offer_keeping(choice)
    with estimating:
        _offer_estimate(mixture, domains)


def _show_stored(mixture: MixtureCard, cards: list[PriorCard]) -> None:
    by_name = {card.name: card for card in cards}
    card = by_name[st.selectbox("Stored prior", list(by_name), key="prior.chosen")]
    ranked = sorted(card.shares.items(), key=lambda pair: -pair[1])
    show_table([{"expert": name, "share": share} for name, share in ranked], "prior", f"Shares of {card.name}")
    st.caption(plain(origin(card.source)))
    missing = [m.expert for m in mixture.members if m.expert not in card.shares]
    with st.container(horizontal=True):
        st.button(
            "Apply to the mixture",
            icon=":material/tune:",
            key="prior.use",
            disabled=bool(missing),
            on_click=set_weights,
            args=(mixture, card.shares),
            help="Sets the weights above. You see the effect immediately; it is only stored when you save it.",
        )
        if st.button("Delete this prior", icon=":material/delete:", key="prior.delete", disabled=cannot_change()):
            apply(
                lambda session: priors.delete_prior(session, card.name),
                f"The prior {card.name} is deleted; mixtures keep the weights they have.",
            )
    if missing:
        st.caption(plain(f"It cannot be applied to this mixture: it has no share for {missing[0]}."))


def origin(source: PriorSource | GivenByHand) -> str:
    """A sentence on where a prior comes from."""
    if not isinstance(source, PriorSource):
        return "Given by hand."
    return (
        f"Estimated on {pluralize(source.num_blocks, 'block')} of {source.block_size} tokens of {source.split} text of "
        f"{source.domain} with {source.mixture}, evidence: {evidence_text(source.evidence)}."
    )


def _offer_keeping(choice: MixtureRequest) -> None:
    with st.form("prior.keep", border=False):
        name = st.text_input("Save the weights above as a prior", key="prior.keep.name", placeholder="its name")
        if st.form_submit_button("Keep", icon=":material/bookmark_add:", disabled=cannot_change()):
            weights = choice.weights or {}
            shares = {expert: weights[expert] for expert in choice.active or ()}
            apply(lambda session: priors.give_prior(session, name, shares), f"The prior {name} is kept.")


def _offer_estimate(mixture: MixtureCard, domains: list[str]) -> None:
    with st.form("prior.estimate", border=False):
        name = st.text_input("Estimate a prior on held-out text", key="prior.estimate.name", placeholder="its name")
        left, right = st.columns(2)
        domain = left.selectbox("Domain", domains, key="prior.estimate.domain")
        blocks, fault = draw_number(
            "Blocks of dev text",
            key="prior.estimate.blocks",
            default=PAPER_BLOCKS,
            lowest=1,
            highest=10_000,
            container=right,
        )
        evidence = {name: value for name, value in mixture.gate.items() if name == "evidence"}
        # Not disabled by a fault: only this button sends the fields, the corrected one among them.
        if st.form_submit_button("Estimate", icon=":material/calculate:", disabled=cannot_change()) and not fault:
            with explain_problems():
                with Client(get_settings()) as client:
                    client.estimate_prior(name=name, mixture=mixture.name, domain=domain, num_blocks=blocks, **evidence)
                keep(f"The prior {name} is estimated.")
                st.rerun()


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
    mixture, split = cards[st.session_state["mixture"]], st.session_state["mixture.split"]
    saved = saved_request(mixture)
    choice: MixtureRequest = st.session_state["mixture.choice"]
    st.session_state["mixture.drawn"] = (mixture.name, split)
    if len(saved.active or ()) == 1:
        st.caption(SINGLE_EXPERT)
    else:
        is_next = describe_calibration(mixture) and not is_calibrating(mixture)
        title = "Next: calibrate the evidence" if is_next else "Calibrate the evidence"
        with st.container(border=True, key="calibration"):
            st.header(title, anchor=False)
            show_calibration(mixture, saved)
        with st.container(border=True, key="inference_modes"):
            st.header("Perplexity by inference mode: the lowest of each row is bold", anchor=False)
            show_modes(saved, split)
    priors = st.expander("Priors: save, estimate, apply", icon=":material/balance:", key=_PRIORS, on_change="rerun")
    if content := content_of(priors, _PRIORS):
        with content:
            show_priors(mixture, choice)
    show_temperature(mixture, saved)
    show_deletion(mixture)


@fragment()
def _show_choice(cards: Mapping[str, MixtureCard]) -> None:
    """The first screen. A toggle draws only this part again; the choice is left in the session for the others."""
    right = show_head(MIXTURES)
    places = st.columns([3, 3, 2])
    with places[0]:
        name = choose_one(st.selectbox, "Mixture", list(cards), key="mixture")
    with places[1]:
        others = [_NOBODY, *(card for card in cards if card != name)]
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


if __name__ == "__main__":
    show()
