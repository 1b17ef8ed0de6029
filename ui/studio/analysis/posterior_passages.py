"""The passages behind a cell of the posterior heatmap: held-out text of its domain, read word by word."""

from __future__ import annotations

import streamlit as st

from ui.client import Client
from ui.present.text.formatting import plain
from ui.studio.analysis.posterior_words import show_words
from ui.widgets.address import choose_one
from ui.widgets.background import fetch_in_background
from workbench.analysis.sample_texts import passages
from workbench.answers.posteriors import PosteriorAnswer
from workbench.questions.posteriors import PosteriorMap
from workbench.registry.database import reading
from workbench.settings import get_settings
from workbench.specs.requests import MixtureRequest
from workbench.store.storage import get_storage

DOMAIN, PASSAGE = "posteriors.domain", "posteriors.passage"


def choose_domain(domain: str) -> None:
    """Takes up another domain, with its first passage."""
    st.session_state[DOMAIN] = domain
    _go_to_first_passage()


def _go_to_first_passage() -> None:
    st.session_state[PASSAGE] = 1


def show_passages(answer: PosteriorMap, saved: MixtureRequest) -> None:
    """A passage of one domain and the weights of the experts at each of its words. Both stand in the address."""
    domains = [row.domain for row in answer.domains]
    title = st.empty()
    left, right = st.columns([3, 2], vertical_alignment="bottom")
    domain = choose_one(left.selectbox, "Domain of the text", domains, key=DOMAIN, on_change=_go_to_first_passage)
    title.markdown(f"##### A passage of {plain(domain)}")
    with reading() as session:
        texts = passages(session, get_storage(get_settings()), saved.model, domain, answer.split)
    if not texts:
        st.info(plain(f"The {answer.split} text of {domain} has no document."))
        return
    numbers = list(range(1, len(texts) + 1))
    place = choose_one(right.segmented_control, "Passage", numbers, default=1, key=PASSAGE, required=True)
    read = _read(saved, texts[place - 1])
    if read and read.tokens:
        st.caption("The beginning of a held-out document, read with the mixture's own gate.")
        show_words(read.tokens, read.weights, read.experts, "posterior_passage")


def _read(saved: MixtureRequest, text: str) -> PosteriorAnswer | None:
    """The passage read by the mixture as it is saved: the server knows it, `saved` only tells when to read again."""

    def fetch() -> PosteriorAnswer:
        with Client(get_settings()) as client:
            return client.posterior(model=saved.model, text=text)

    return fetch_in_background("posterior_passage", (saved, text), fetch, "Reading the passage")
