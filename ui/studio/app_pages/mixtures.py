"""Named compositions of experts: switch members, weigh them, read at once what it costs, save when you mean it."""

from __future__ import annotations

from typing import Any

import streamlit as st

from ui.client import Client
from ui.present.charts.curves_and_bars import mixture_bars
from ui.present.missing_scores import gap_words
from ui.present.pages import TRAIN
from ui.present.text.formatting import plain
from ui.present.text.measures import measure_words
from ui.present.text.mixtures import ALONE
from ui.present.throughput import cost_words, counted_as
from ui.studio.job_views.pending_jobs import empty_until, empty_until_scored
from ui.studio.mixtures.inference_modes_view import show_modes
from ui.studio.mixtures.mixture_controls import Choice, choose, reset, saved_choice, state_of
from ui.studio.mixtures.mixture_edit import save_choice, show_deletion, show_new_mixture
from ui.studio.mixtures.prior_editor import show_priors
from ui.studio.shared.background import fetch_in_background
from ui.studio.shared.notices import explained
from ui.studio.shared.show_chart import show_chart
from workbench.analysis.costs import mixture_costs
from workbench.answers.perplexities import MixedScores
from workbench.registry import mixtures
from workbench.registry.cards import MixtureCard
from workbench.registry.database import reading
from workbench.settings import get_settings
from workbench.store.storage import get_storage


def show() -> None:
    """Draws the page."""
    st.title("Mixtures")
    with reading() as session:
        cards = mixtures.most_useful_first(session)
    if cards:
        by_name = {card.name: card for card in cards}
        name = st.selectbox("Mixture", list(by_name), key="mixture")
        _show_mixture(by_name[name])
    else:
        empty_until(
            "train-demix",
            "There is no mixture yet.",
            "A DEMix model makes one of all its experts.",
            TRAIN.script,
            "Train",
        )
    show_new_mixture()


def _show_mixture(mixture: MixtureCard) -> None:
    split = st.segmented_control(
        "Held-out text",
        ["test", "dev"],
        default="test",
        key="mixture.split",
        required=True,
        help="Which stored scores the perplexities come from.",
    )
    desk, effect = st.columns(2, gap="large")
    with desk:
        choice = choose(mixture)
        _offer_saving(mixture, choice)
    with effect:
        _show_effect(mixture, choice, split)
        _show_cost(mixture, choice)
    with st.expander("Priors: keep, estimate, put one on the desk", icon=":material/balance:"):
        show_priors(mixture, choice)
    if len(saved_choice(mixture).active) == 1:
        st.caption(ALONE)
    else:
        st.markdown("##### Which way to use the experts is best? Read a row; the lowest is bold")
        show_modes(mixture.name, split, state_of(mixture))
    show_deletion(mixture)


def _offer_saving(mixture: MixtureCard, choice: Choice) -> None:
    is_saved = choice == saved_choice(mixture)
    st.caption("This is what is saved." if is_saved else "Not saved: only this screen sees it.")
    with st.container(horizontal=True):
        can_save = bool(choice.active) and not is_saved
        if st.button("Save as the mixture's state", type="primary", disabled=not can_save, key="mixture.save"):
            save_choice(mixture, choice)
        st.button("Back to what is saved", disabled=is_saved, key="mixture.reset", on_click=reset, args=(mixture,))


def _show_effect(mixture: MixtureCard, choice: Choice, split: str) -> None:
    if not choice.active:
        st.warning("Nobody takes part. Switch on at least one expert.")
        return
    before = _mixed("mix_saved", {"mixture": mixture.name, "split": split, "as saved": state_of(mixture)})
    now = _mixed("mix_now", choice.wish(mixture, split)) if before else None
    if not before or not now:
        return
    if not now.domains:
        empty_until_scored(gap_words(choice.active, split), "Evaluate the mixture once.", mixture.name, split)
        return
    show_chart(mixture_bars(before.domains, now.domains), "mixture_bars")
    took = f"in {now.seconds * 1000:.0f} ms"
    st.caption(plain(f"Exact, from stored scores of the {split} split, {took}. {measure_words(now.domains)}"))


def _show_cost(mixture: MixtureCard, choice: Choice) -> None:
    if choice.active:
        with explained(), reading() as session:
            found = mixture_costs(session, get_storage(get_settings()), mixture.name, active=choice.active)
            st.caption(plain(cost_words(found)), help=counted_as(found))


def _mixed(key: str, question: dict[str, Any]) -> MixedScores | None:
    body = {name: value for name, value in question.items() if name != "as saved"}

    def ask() -> MixedScores:
        with Client(get_settings()) as client:
            return client.mix(**body)

    return fetch_in_background(key, question, ask, "Mixing the stored scores")


if __name__ == "__main__":
    show()
