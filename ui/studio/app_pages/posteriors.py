"""The posterior weight of each expert, by word of a text and by domain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import streamlit as st

from ui.addresses import LONGEST_QUERY
from ui.present.pages import POSTERIORS
from ui.present.text.formatting import plain, pluralize
from ui.studio.analysis.posterior_view import draw_parts, read_text, show_domains, show_inside
from ui.studio.analysis.text_reader import show_reading
from ui.studio.job_views.pending_jobs import empty_until_trained
from ui.studio.mixtures.gate_form import draw_evidence, note_gate, recall_gate, setting_questions
from ui.studio.mixtures.mixture_controls import saved_request
from ui.studio.shared.examples import show_example
from ui.widgets.address import choose_one, fresh, note, show_fault
from ui.widgets.notices import explain_problems
from ui.widgets.page_head import show_head
from workbench.analysis.sample_texts import example
from workbench.answers.cards import MixtureCard
from workbench.answers.posteriors import PosteriorAnswer
from workbench.registry import mixtures
from workbench.registry.database import reading
from workbench.specs.requests import MixtureRequest
from workbench.store.storage import get_storage

_VIEWS = ("One text", "All domains")
_TEXT, _WRITTEN = "posterior.text", "posterior.written"  # of the field, and kept while the field is not drawn
_GATE, _OFF = "posterior.gate", "posterior.off"  # in the address: settings of the gate, parts that are off
_EVIDENCE = "evidence"  # the only setting of the gate here


def show() -> None:
    """Draws the page."""
    show_head(POSTERIORS)
    with reading() as session:
        cards = {card.name: card for card in mixtures.most_useful_first(session)}
    if not cards:
        empty_until_trained("There is no mixture yet.", "A DEMix model makes one of all its experts.")
        show_example(POSTERIORS)
        return
    columns = st.columns([3, 2, 4], vertical_alignment="bottom")
    name = choose_one(columns[0].selectbox, "Mixture", list(cards), key="posterior.mixture")
    view = choose_one(
        columns[1].segmented_control, "Of what", _VIEWS, default=_VIEWS[0], key="posterior.view", required=True
    )
    if view == _VIEWS[1]:
        show_domains(saved_request(cards[name]))
    else:
        _show_text(cards[name], cards)


def _show_text(mixture: MixtureCard, cards: Mapping[str, MixtureCard]) -> None:
    """The story of one text: the text, the strip of weights, the words, and the numbers of one token."""
    left, right = st.columns([4, 9])
    with left, st.container(border=True):
        st.markdown("## A text")
        sent = _draw_form(mixture)
    if sent is None:
        with right:
            show_example(POSTERIORS)
    else:
        request, text = sent
        model = cards.get(request.model)  # which may be gone by now
        with right:
            parts = {member.expert: member.parts for member in model.members if member.parts} if model else {}
            doing = "Reading the text (the first time also loads the experts)"
            if answer := read_text("posterior", request, text, doing):
                _draw(request, text, answer, parts)


def _draw_form(mixture: MixtureCard) -> tuple[MixtureRequest, str] | None:
    """The request that was sent last, with its text; None before. A text in the address is read without a click."""
    model = mixture.name
    linked = fresh(_TEXT)
    text = _draw_field(linked)
    with st.container(horizontal=True):
        is_sent = st.button("Show the posterior", type="primary", key="posterior.send", icon=":material/send:")
        st.button(
            "Take an example",
            icon=":material/ink_pen:",
            on_click=_take_example,
            args=(model,),
            help="From held-out text.",
        )
    with st.expander("Evidence and parts", icon=":material/tune:"):
        gate = _draw_evidence(mixture)
        parts = draw_parts(mixture, _OFF)
    for key in (_GATE, _OFF):
        show_fault(key)
    if is_sent or linked:
        if text.strip():
            st.session_state["posterior.request"] = MixtureRequest(model, gate=gate, parts=parts), text
        else:
            st.warning("There is no text yet. Write or paste some above.")
    sent: tuple[MixtureRequest, str] | None = st.session_state.get("posterior.request")
    if sent:
        _note_text(sent[1])
    return sent


def _draw_evidence(mixture: MixtureCard) -> dict[str, Any]:
    """What the gate sees of the text, for this page only; nothing of a gate without evidence."""
    form = f"posterior.{mixture.id}"
    recall_gate(form, mixture.gate, _GATE, [_EVIDENCE])
    questions = [
        question for question in setting_questions(mixture.gate["kind"], mixture.gate) if question.path[-1] == _EVIDENCE
    ]
    gate = {question.path[-1]: draw_evidence(form, question) for question in questions}
    note_gate(mixture.gate, {**mixture.gate, **gate}, _GATE)
    return gate


def _draw_field(linked: list[str] | None) -> str:
    """The field of the text. It holds what was written before, also when another view or page was shown since."""
    if linked:
        st.session_state[_TEXT] = linked[-1]
    elif _TEXT not in st.session_state:
        st.session_state[_TEXT] = st.session_state.get(_WRITTEN, "")
    text: str = st.text_area(
        "Text",
        st.session_state[_TEXT],  # also as its default: see choose_one
        key=_TEXT,
        height=214,
        label_visibility="collapsed",
        placeholder="Paste or write a text of any domain.",
    )
    st.session_state[_WRITTEN] = text
    return text


def _note_text(text: str) -> None:
    fits = len(quote(text)) <= LONGEST_QUERY
    note(_TEXT, [text] if fits else [])
    if not fits:
        st.caption("This text is too long for an address: a link opens the page without it.")


def _take_example(model: str) -> None:
    """Puts held-out text of two domains into the field: where one ends, the lead should change."""
    with explain_problems(), reading() as session:
        st.session_state[_TEXT] = example(session, get_storage(), model)


def _draw(request: MixtureRequest, text: str, answer: PosteriorAnswer, parts: Mapping[str, list[str]]) -> None:
    tokens, experts = answer.tokens, answer.experts
    if not tokens:
        st.info("The text has no token. Write a longer one.")
        return
    if len(experts) == 1:
        st.caption(
            plain(f"{pluralize(len(tokens), 'token')}, all of {experts[0]}: it is the only expert, so its weight is 1.")
        )
    else:
        show_reading(request, text, answer, "posterior")
    show_inside(answer, parts)


if __name__ == "__main__":
    show()
