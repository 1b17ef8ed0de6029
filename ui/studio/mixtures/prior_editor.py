"""Priors of a mixture: apply a stored one, save the weights as one, estimate one on held-out text."""

from __future__ import annotations

import streamlit as st

from engine.config import PAPER_BLOCKS
from ui.client import Client
from ui.present.text.formatting import plain, pluralize
from ui.present.text.posteriors import evidence_text
from ui.studio.mixtures.mixture_controls import set_weights
from ui.widgets.changes import apply, cannot_change
from ui.widgets.data_table import show_table
from ui.widgets.fields import draw_number
from ui.widgets.notices import explained, keep
from workbench.answers.cards import GivenByHand, MixtureCard, PriorCard
from workbench.answers.posteriors import PriorSource
from workbench.registry import corpora, priors
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
            place=right,
        )
        evidence = {name: value for name, value in mixture.gate.items() if name == "evidence"}
        # Not disabled by a fault: only this button sends the fields, the corrected one among them.
        if st.form_submit_button("Estimate", icon=":material/calculate:", disabled=cannot_change()) and not fault:
            with explained():
                with Client(get_settings()) as client:
                    client.estimate_prior(name=name, mixture=mixture.name, domain=domain, num_blocks=blocks, **evidence)
                keep(f"The prior {name} is estimated.")
                st.rerun()
