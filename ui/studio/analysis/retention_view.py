"""Learning vs. forgetting of experts, on domains that the user chooses."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from engine.text.split_names import HeldOutSplit
from jobs.queue.submit import submit
from ui.present.charts.colours import read_looks
from ui.present.charts.retention_chart import retention_scatter
from ui.present.pages import LEARNED_AND_KEPT, SPECIALIZATION
from ui.present.text.formatting import plain
from ui.present.text.retention import HOW_TO_READ, missing_words, number_of, retention_rows, text_words
from ui.studio.forms.job_form import show_last
from ui.widgets.address import go_to
from ui.widgets.data_table import show_table
from ui.widgets.notices import explained
from ui.widgets.rights import cannot_change
from ui.widgets.show_chart import show_chart
from workbench.answers.cards import ExpertCard
from workbench.questions.question import ask
from workbench.questions.retention import Metric, Retention, RetentionRequest, suggest_defaults
from workbench.registry.database import reading

COMPARED = "specialization.compared"  # the names of the experts


def offer_retention(cards: Sequence[ExpertCard]) -> None:
    """The way to the comparison of these experts."""
    chosen = {COMPARED: [card.name for card in cards], "specialization.view": LEARNED_AND_KEPT}
    if st.button(
        "Compare learning and forgetting", icon=SPECIALIZATION.icon, on_click=st.session_state.update, args=(chosen,)
    ):
        go_to(SPECIALIZATION)


def show_retention(cards: Sequence[ExpertCard], split: HeldOutSplit, key: str) -> None:
    """Asks for the domain to be kept and for the targets, and shows these experts on them."""
    with reading() as session:
        defaults = suggest_defaults(session, [card.name for card in cards])
    left, right = st.columns([1, 2])
    retain = left.selectbox(
        "Domain that must not be forgotten",
        defaults.retain,
        key=f"{key}.retain",
        help="A domain that the base model knew and the experts were not trained on. The most often retained come "
        "first.",
    )
    there = sorted(name for name in defaults.retain if name != retain)
    targets = right.multiselect(
        "Target domains", there, [name for name in there if name in defaults.targets], key=f"{key}.targets.{retain}"
    )
    if retain is None or not targets:
        st.info("Choose a domain to be learned, and another one that must not be forgotten.")
        return
    names = [card.name for card in cards]
    with explained():
        _show(ask(RetentionRequest(retain=retain, targets=targets, experts=names, split=split).answer), key)


def _show(answer: Retention, key: str) -> None:
    usual = number_of(answer)
    metrics: list[Metric] = ["accuracy", "perplexity"]
    number = st.segmented_control("Compare by", metrics, default=usual, key=f"{key}.number.{usual}", required=True)
    picture = retention_scatter(answer, number, read_looks())
    if picture:
        show_chart(picture, f"{key}_scatter")
        st.caption(
            plain(f"{text_words(answer)} {HOW_TO_READ} Where names would overlap, hover a point to read its own.")
        )
    else:
        st.info(plain(f"No expert here has its {number} measured on all of these domains."))
    st.markdown("##### Each expert on each domain: higher accuracy and lower perplexity are better")
    show_table(retention_rows(answer), f"{key}_rows", f"Experts on {', '.join(answer.targets)} and {answer.retain}")
    if answer.missing:
        offer_scores(answer, key)


def offer_scores(answer: Retention, key: str) -> None:
    """What is missing, and the evaluations that make it, as a button and as commands."""
    st.warning("Some scores are missing. Only stored evaluations are compared.")
    for sentence, _ in missing_words(answer):
        st.caption(plain(sentence))
    for evaluation in answer.evaluations:
        st.code(evaluation.command, language="bash", wrap_lines=True)
    if answer.evaluations and st.button(
        "Score what is missing", icon=":material/send:", key=f"{key}.score", help=_HOW_SCORED, disabled=cannot_change()
    ):
        with explained():
            for evaluation in answer.evaluations:
                st.session_state[f"{key}.scores.job"] = submit(evaluation.spec)
    show_last(f"{key}.scores")


_HOW_SCORED = "Scores each of these experts on the same tokens of a domain. Stored scores are not computed again."
