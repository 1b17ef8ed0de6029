"""The text that the overview opens with: read while one writes it, with a switch for each expert."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import streamlit as st

from ui.addresses import MOST_LINKED
from ui.present.pages import POSTERIORS
from ui.present.text.formatting import plain
from ui.studio.analysis.text_reader import show_reading
from ui.widgets.background import forget, kept_client, poll
from ui.widgets.elements.components import commit_while_typing
from ui.widgets.notices import explain_problems
from workbench.analysis.sample_texts import example
from workbench.answers.cards import ExpertCard, MixtureCard
from workbench.answers.posteriors import PosteriorAnswer
from workbench.registry.database import reading
from workbench.settings import get_settings
from workbench.specs.requests import MixtureRequest
from workbench.store.storage import get_storage

EXAMPLE = "Permission is hereby granted, free of charge, to any person obtaining a copy of this software"
MOST_PARAMETERS = 3e9  # of all experts with their bases: larger mixtures read a text only on request
_FIELD, _KEPT, _CALL = "overview.text", "overview.kept_text", "overview.reading"
_READY, _REQUESTED = (
    "overview.ready_text",
    "overview.requested",
)  # mixture and ready text; mixture and text that were requested


def show_field(title: str) -> None:
    """The field while no mixture can read: what is written stands there until one can."""
    with st.container(border=True, key="own_text"):
        st.header(title, anchor=False)
        st.caption("It is read automatically as soon as the experts can read, if you do not reload this page.")
        _draw_field("")
        if st.session_state[_KEPT]:
            st.markdown(":material/bookmark: Your text is kept.")


def show_opening(mixture: MixtureCard, experts: Iterable[ExpertCard]) -> None:
    """The field, and who reads its text. It begins with held-out text of the mixture's domains."""
    is_live = _size(mixture, experts) <= MOST_PARAMETERS
    with st.container(border=True, key="opening"):
        st.header(plain(f"Which expert of {mixture.name} reads which word?"), anchor=False)
        left, right = st.columns([9, 4])  # on a phone the strip comes first
        with right:
            text = _draw_field(_ready_text(mixture.name))
            is_requested = _draw_buttons(mixture.name, text, is_live)
        with left:
            if text and (is_live or is_requested):
                _read(mixture, text)
            elif text:
                st.info(
                    f"This mixture is large, so a text is read only when you press “{_READ}”.", icon=":material/info:"
                )
            else:
                st.caption("Write or paste a text of any domain: it is read while you write.")


_READ = "Read this text"


def _size(mixture: MixtureCard, experts: Iterable[ExpertCard]) -> float:
    """Parameters of all experts that take part, each with its base."""
    cards: Mapping[str, ExpertCard] = {card.name: card for card in experts}
    taking_part = [cards[one.expert] for one in mixture.members if one.takes_part and one.expert in cards]
    return sum(card.total_parameters or card.num_parameters for card in taking_part)


def _ready_text(mixture: str) -> str:
    """Held-out text of the mixture's domains; chosen once, since it takes a moment."""
    known: tuple[str, str] = st.session_state.get(_READY, ("", ""))
    if known[0] != mixture:
        with reading() as session:
            known = mixture, example(session, get_storage(), mixture)
        st.session_state[_READY] = known
    return known[1]


def _draw_field(ready: str) -> str:
    """What the field holds: what was written before, also when another page was shown since; else the ready text."""
    if _FIELD not in st.session_state:
        st.session_state[_FIELD] = st.session_state.get(_KEPT) or ready
    elif not st.session_state[_FIELD] and _KEPT not in st.session_state:
        st.session_state[_FIELD] = ready
    with st.container(key="opening_field"):
        text: str = st.text_area(
            "Text",
            st.session_state[_FIELD],  # also as its default: see choose_one
            key=_FIELD,
            height=190,
            label_visibility="collapsed",
            placeholder="Paste a few sentences or lines of code.",
        )
    commit_while_typing(".st-key-opening_field", "overview.typing")
    st.session_state[_KEPT] = text if text != ready else ""
    return text.strip()


def _draw_buttons(mixture: str, text: str, is_live: bool) -> bool:
    """Buttons below the field; whether this text was requested."""
    with st.container(horizontal=True, vertical_alignment="center"):
        if not is_live:
            st.button(_READ, key="overview.read", type="primary", on_click=_request, args=(mixture, text))
        st.button("Take an example", key="overview.example", type="tertiary", on_click=_take_example, args=(mixture,))
        chosen = {"posterior.mixture": mixture, "posterior.text": text[:MOST_LINKED]}
        st.page_link(POSTERIORS.script, label="Open in Posteriors", icon="", query_params=chosen)
    return st.session_state.get(_REQUESTED) == (mixture, text)


def _request(mixture: str, text: str) -> None:
    st.session_state[_REQUESTED] = mixture, text
    forget(_CALL)


def _take_example(mixture: str) -> None:
    st.session_state[_FIELD] = _ready_text(mixture) or EXAMPLE


def _read(mixture: MixtureCard, text: str) -> None:
    def fetch() -> PosteriorAnswer:
        return kept_client(get_settings()).posterior(model=mixture.name, text=text)

    call = poll(_CALL, (mixture.name, mixture.version, text), fetch)
    if not call.is_done():
        st.caption("The experts are reading it; the first time they are loaded, which takes longer.")
    elif call.failure is not None:
        with explain_problems():
            raise call.failure
    elif not call.answer.tokens:
        st.caption("The text has no token. Write a longer one.")
    else:
        show_reading(MixtureRequest(mixture.name), text, call.answer, "overview", is_short=True)
