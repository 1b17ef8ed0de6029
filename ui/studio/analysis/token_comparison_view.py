"""Token comparison of a cell of the heatmap: where an expert is worst and best against the in-domain expert."""

from __future__ import annotations

import streamlit as st

from ui.client import Client
from ui.present.charts.heatmap import Scores
from ui.present.text.formatting import plain
from ui.present.text.token_comparison import contrast_words, passage_words, tinted_difference
from ui.widgets.background import fetch_in_background
from workbench.answers.posteriors import TokenComparison
from workbench.settings import get_settings

EXPERT, DOMAIN = "contrast.expert", "contrast.domain"


def choose_cell(scores: Scores, expert_place: int, domain_place: int) -> None:
    """Takes up the cell that was clicked."""
    shown = scores.at_home_somewhere()
    st.session_state[EXPERT], st.session_state[DOMAIN] = shown.experts[expert_place], shown.domains[domain_place]


def show_contrast(scores: Scores, split: str) -> None:
    """Asks for a cell and shows where its expert and the domain's own differ."""
    shown = scores.at_home_somewhere()
    st.markdown("##### Token comparison: click a cell, or choose one here")
    left, right = st.columns(2)
    _forget_unknown(shown)
    expert = left.selectbox("Expert", shown.experts, index=None, key=EXPERT, placeholder="Choose an expert")
    domain = right.selectbox("Domain of the text", shown.domains, index=None, key=DOMAIN, placeholder="Choose a domain")
    if not expert or not domain:
        return
    home = shown.own_expert(domain)
    if home is None or home == expert:
        st.info(plain(f"{expert} is the in-domain expert of {domain}: choose a cell of another domain."))
        return
    answer = _fetch({"domain": domain, "expert": expert, "rival": home, "split": split})
    if answer:
        _show(answer)


def _forget_unknown(shown: Scores) -> None:
    for key, names in ((EXPERT, shown.experts), (DOMAIN, shown.domains)):
        if st.session_state.get(key) not in names:
            st.session_state[key] = None


def _fetch(request: dict[str, str]) -> TokenComparison | None:
    def fetch() -> TokenComparison:
        with Client(get_settings()) as client:
            return client.contrast(**request)

    return fetch_in_background("contrast", request, fetch, "Comparing the two experts token by token")


def _show(answer: TokenComparison) -> None:
    st.markdown(plain(contrast_words(answer)))
    st.caption(
        plain(
            f"Blue: {answer.expert} gave the token more probability than {answer.rival}; orange: less. "
            "The stronger the colour, the larger the difference; hover a token to read the difference in nats."
        )
    )
    worst, best = st.columns(2, gap="large")
    for column, title, passages in ((worst, "Worst", answer.worst), (best, "Best", answer.best)):
        with column:
            st.markdown(f"**{title} against the in-domain expert**")
            for passage in passages:
                with st.container(border=True):
                    st.caption(plain(passage_words(passage)))
                    st.html(tinted_difference(passage.tokens, passage.differences))
