"""The page Overview before the first mixture is scored: the steps of the demo while it trains, and a text meanwhile."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from jobs.plans.demo import is_fresh, submit_demo
from ui.present.charts.colours import looks_of
from ui.present.first_steps import Step, StepState, first_steps, first_visit_title
from ui.present.pages import CORPORA
from ui.present.text.formatting import plain
from ui.studio.overview.at_work import show_recent
from ui.studio.overview.contents import Contents
from ui.studio.overview.own_text import show_own_text
from ui.widgets.notices import explained, keep
from ui.widgets.rights import cannot_change

_ICONS: Mapping[StepState, str] = {
    "done": ":material/check_circle:",
    "now": ":material/pending:",
    "later": ":material/radio_button_unchecked:",
}
_WORDS: Mapping[StepState, str] = {"done": "done", "now": "now", "later": "later"}
_THREE_WORDS = """**Expert**: a part of a language model, or a whole model, trained on one domain.

**Gate**: gives each expert its weight at each token.

**Mixture**: a named list of experts with a gate. It is what you generate with."""


def show_first_visit(have: Contents) -> None:
    """The steps at the left, a text and three words at the right."""
    left, right = st.columns([2, 1])
    with left, st.container(border=True, key="first_steps"):
        holdings = have.holdings()
        st.subheader(plain(first_visit_title(holdings)), anchor=False)
        st.caption("Text becomes domains, domains become experts. Nothing is downloaded.")
        if not have.unfinished and not have.experts:
            _offer_start()
        for number, step in enumerate(first_steps(holdings, [one.name for one in have.domains], have.over), 1):
            _show_step(number, step)
    with right:
        show_own_text("Meanwhile: paste a text", None, looks_of(have.experts), is_first=True)
        with st.container(border=True, key="words"):
            st.subheader("Three words to know", anchor=False)
            st.markdown(_THREE_WORDS)
        if have.over:
            show_recent(have.over)


def _show_step(number: int, step: Step) -> None:
    label = f"{number}. {plain(step.title)} ({_WORDS[step.state]})"
    st.markdown(f"{_ICONS[step.state]} **{label}**" if step.state != "later" else f"{_ICONS[step.state]} {label}")
    if step.job:
        st.progress(step.progress)
    st.caption(plain(step.words))


def _offer_start() -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        if is_fresh() and st.button(
            "Make the demo", key="overview.demo", icon=":material/play_arrow:", disabled=cannot_change()
        ):
            with explained():
                submit_demo()
                keep("The demo is on its way: text of this machine becomes five experts.")
            st.rerun()
        st.page_link(CORPORA.script, label="Use my own text", icon="")
