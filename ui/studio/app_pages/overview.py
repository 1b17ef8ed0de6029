"""The overview: three numbers, the picture of text, experts and mixture, what runs now, and the next step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import streamlit as st

from jobs.plans.demo import is_fresh, submit_demo
from ui.present.charts.colours import Looks, looks_of
from ui.present.first_steps import StartStep, StepState, first_steps, first_visit_title
from ui.present.next_steps import Holdings, Suggestion, suggestions
from ui.present.pages import CORPORA, EXPERTS, OVERVIEW
from ui.present.picture import (
    card_of,
    cards_to_show,
    describe_serving,
    picture_legend,
    picture_of,
    place_of,
    scores_of,
    switched_off,
)
from ui.present.text.formatting import plain, pluralize
from ui.present.text.measures import describe_comparability, odd_measures
from ui.studio.overview.at_work import announce_ends, show_health, show_recent, show_unfinished
from ui.studio.overview.contents import (
    Contents,
    curves_of,
    is_fresh_failure,
    mixture_of_page,
    read_contents,
    show_numbers,
)
from ui.studio.overview.own_text import show_own_text
from ui.studio.shared.health import API_SERVER, signs_of_health
from ui.widgets.changes import cannot_change
from ui.widgets.elements.components import show_cards, show_picture
from ui.widgets.notices import explained, keep
from ui.widgets.page_head import show_head, show_next_step
from workbench.answers.cards import MixtureCard
from workbench.settings import get_settings

GLOSSARY = Path(__file__).parents[3] / "docs" / "glossary.md"
REFUSED_HEADING = "## Refused words"  # what follows is for contributors


def glossary_text() -> str:
    """The terms as Markdown; empty for an installation without documents."""
    if not GLOSSARY.is_file():
        return ""
    terms = GLOSSARY.read_text(encoding="utf-8").partition(REFUSED_HEADING)[0]
    return terms[terms.index("\n## ") :].replace("\n## ", "\n#### ")


def show_glossary() -> None:
    """An expander with all terms."""
    if text := glossary_text():
        with st.expander("Glossary: what the terms mean", icon=":material/menu_book:"):
            st.markdown(text)


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


def _show_step(number: int, step: StartStep) -> None:
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


__all__ = ["holdings", "is_fresh_failure", "show"]
_LOOK_AGAIN = 2.0  # seconds


def show() -> None:
    """Draws the page."""
    _live()
    show_glossary()


def holdings() -> Holdings:
    """How many of each thing there are."""
    return read_contents().holdings()


@st.fragment(run_every=_LOOK_AGAIN)
def _live() -> None:
    right = show_head(OVERVIEW)
    with explained():
        have = read_contents()
        steps = suggestions(have.holdings())
        signs = signs_of_health(get_settings(), have.unfinished)
        with right:
            show_health(signs)
            _show_other_step(steps)
        show_next_step(right, steps[0])
        st.caption(plain(steps[0].sentence))
        announce_ends(have.unfinished, have.over)
        if have.is_scored:
            _show_all(have, is_served=next(sign.is_well for sign in signs if sign.part == API_SERVER))
        else:
            show_first_visit(have)


def _show_other_step(steps: Sequence[Suggestion]) -> None:
    if len(steps) > 1 and steps[1].label != steps[0].label:  # two buttons alike would lead to the same page
        with st.container(width="content", key="other_step"):
            st.page_link(steps[1].page.script, label=steps[1].label, icon="")


def _show_all(have: Contents, *, is_served: bool | None) -> None:
    looks, mixture = looks_of(have.experts), mixture_of_page(have)
    show_numbers(have, mixture)
    left, right = st.columns([2, 1])
    with left:
        _show_picture(have, mixture, looks, is_served)
    with right:
        show_unfinished(have.unfinished, have.num_unfinished)
        is_training = any(job.state == "running" and job.kind.startswith("train-") for job in have.unfinished)
        title = "While it trains: which expert reads your text?" if is_training else "Which expert reads your text?"
        show_own_text(title, mixture, looks, is_first=False)
        show_recent(have.over)
    _show_experts(have, mixture, looks)


def _show_picture(have: Contents, mixture: MixtureCard | None, looks: Looks, is_served: bool | None) -> None:
    with st.container(border=True, key="picture"):
        st.header("What is here: text, experts, and what they are mixed into", anchor=False)
        st.caption(plain(picture_legend(mixture)))
        state = describe_serving(have.aliases_of(mixture.name), is_served) if mixture else ""
        data = picture_of(have.domains, have.experts, mixture, scores_of(have.evaluations), looks, state)
        _open(show_picture(data, "living_picture"))


def _show_experts(have: Contents, mixture: MixtureCard | None, looks: Looks) -> None:
    shown = cards_to_show(have.experts, mixture)
    off = switched_off(have.mixtures)
    domains = {one.name: one for one in have.domains}
    certified = {one.about_id for one in have.additions if one.findings.get("ok")}
    scores, curves = scores_of(have.evaluations), curves_of(shown)
    measures = scores.measures(shown)
    odd = odd_measures(measures)
    cards = [
        card_of(
            one,
            domains.get(one.domain),
            scores,
            looks,
            curves.get(one.id, ()),
            one.id in certified,
            off,
            odd.get(one.name, ""),
        )
        for one in shown
    ]
    _open(show_cards(cards, "expert_cards"))
    if words := describe_comparability(measures):
        st.caption(words)
    if more := len(have.experts) - len(shown):
        with st.container(key="small_link_experts"):
            st.page_link(EXPERTS.script, label=f"and {pluralize(more, 'more expert')}", icon="")


def _open(id: str) -> None:
    if id.partition(":")[0].rstrip("s") in ("domain", "expert", "mixture"):
        page, chosen = place_of(id)
        st.switch_page(page.script, query_params=chosen)


if __name__ == "__main__":
    show()
