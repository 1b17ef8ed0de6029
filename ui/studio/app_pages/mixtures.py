"""Mixtures: switch members, set weights, see the effect on perplexity, save."""

from __future__ import annotations

import streamlit as st

from ui.client import Client
from ui.present.charts.curves_and_bars import mixture_bars
from ui.present.missing_scores import gap_words
from ui.present.pages import MIXTURES, TRAIN
from ui.present.text.formatting import plain
from ui.present.text.measures import measure_words
from ui.present.text.mixtures import SINGLE_EXPERT, calibration_words
from ui.present.throughput import cost_words, counted_as
from ui.studio.job_views.pending_jobs import empty_until, empty_until_scored
from ui.studio.mixtures.calibration_view import show_calibration
from ui.studio.mixtures.inference_modes_view import show_modes
from ui.studio.mixtures.mixture_controls import choose, reset, saved_request
from ui.studio.mixtures.mixture_edit import save_choice, show_deletion, show_new_mixture
from ui.studio.mixtures.prior_editor import show_priors
from ui.studio.mixtures.temperature_view import show_temperature
from ui.studio.shared.examples import show_example_mixture
from ui.widgets.address import choose_one
from ui.widgets.background import fetch_in_background
from ui.widgets.notices import explained
from ui.widgets.page_head import show_head
from ui.widgets.show_chart import show_chart
from workbench.analysis.costs import mixture_costs
from workbench.answers.perplexities import MixedScores
from workbench.mixture_request import MixtureRequest
from workbench.registry import mixtures
from workbench.registry.cards import MixtureCard
from workbench.registry.database import reading
from workbench.settings import get_settings
from workbench.store.storage import get_storage


def show() -> None:
    """Draws the page."""
    show_head(MIXTURES)
    with reading() as session:
        cards = mixtures.most_useful_first(session)
    if cards:
        by_name = {card.name: card for card in cards}
        name = choose_one(st.selectbox, "Mixture", list(by_name), key="mixture")
        _show_mixture(by_name[name])
    else:
        empty_until(
            "train-joint",
            "There is no mixture yet.",
            "A DEMix model makes one of all its experts.",
            TRAIN.script,
            "Train",
        )
        show_example_mixture()
    show_new_mixture()


def _show_mixture(mixture: MixtureCard) -> None:
    split = choose_one(
        st.segmented_control,
        "Held-out text",
        ["test", "dev"],
        default="test",
        key="mixture.split",
        required=True,
        help="Which stored scores the perplexities come from.",
    )
    saved = saved_request(mixture)
    controls, effect = st.columns(2, gap="large")
    with controls:
        choice = choose(mixture)
        _offer_saving(mixture, choice, is_saved=choice == saved)
        show_temperature(mixture, saved)
    with effect:
        if choice.active:
            _show_effect(saved, choice, split)
            _show_cost(choice)
        else:
            st.warning("No expert is active. Switch on at least one.")
    with st.expander("Priors: save, estimate, apply", icon=":material/balance:"):
        show_priors(mixture, choice)
    if len(saved.active or ()) == 1:
        st.caption(SINGLE_EXPERT)
    else:
        title = "Next: calibrate the evidence" if calibration_words(mixture) else "Evidence: calibrate the posterior"
        with st.expander(title, icon=":material/speed:"):
            show_calibration(mixture, saved)
        st.markdown("##### Perplexity by inference mode: the lowest of each row is bold")
        show_modes(saved, split)
    show_deletion(mixture)


def _offer_saving(mixture: MixtureCard, choice: MixtureRequest, *, is_saved: bool) -> None:
    st.caption("These are the saved settings." if is_saved else "Not saved: these settings apply to this page only.")
    with st.container(horizontal=True):
        can_save = bool(choice.active) and not is_saved
        if st.button("Save to the mixture", type="primary", disabled=not can_save, key="mixture.save"):
            save_choice(mixture, choice)
        st.button("Discard changes", disabled=is_saved, key="mixture.reset", on_click=reset, args=(mixture,))


def _show_effect(saved: MixtureRequest, choice: MixtureRequest, split: str) -> None:
    before = _mix("mix_saved", saved, split)
    now = before if choice == saved else _mix("mix_now", choice, split) if before else None
    if not before or not now:
        return
    if not now.domains:
        empty_until_scored(gap_words(choice.active or (), split), "Evaluate the mixture once.", choice.model, split)
        return
    show_chart(mixture_bars(before.domains, now.domains), "mixture_bars")
    took = f"in {now.seconds * 1000:.0f} ms"
    st.caption(plain(f"Exact, from stored scores of the {split} split, {took}. {measure_words(now.domains)}"))


def _show_cost(choice: MixtureRequest) -> None:
    active = MixtureRequest(choice.model, choice.active)  # every expert that is on is computed, whatever it weighs here
    with explained(), reading() as session:
        costs = mixture_costs(session, get_storage(get_settings()), active)
        st.caption(plain(cost_words(costs)), help=counted_as(costs))


def _mix(key: str, request: MixtureRequest, split: str) -> MixedScores | None:
    def fetch() -> MixedScores:
        with Client(get_settings()) as client:
            return client.mix(mixture=request.model, **request.changes(), split=split)

    return fetch_in_background(key, (request, split), fetch, "Mixing the stored scores")


if __name__ == "__main__":
    show()
