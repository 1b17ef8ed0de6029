"""The words of a text coloured by their leading expert, with the strip of all weights and the numbers of a token."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from ui.present.charts.colours import read_looks
from ui.present.charts.token_view import weight_data
from ui.present.charts.trajectories import Weights, average_weights, lead_title, posterior_lines
from ui.present.text.formatting import pluralize
from ui.widgets.elements.components import show_tokens
from ui.widgets.show_chart import show_chart


def show_words(tokens: Sequence[str], weights: Weights, experts: Sequence[str], key: str) -> None:
    """Parts 2 to 4 of the story of a text: strip, words and token; then the same as lines and as means."""
    looks = read_looks()
    data = weight_data(
        tokens,
        weights,
        experts,
        [looks.expert(name) for name in experts],
        parts=("strip", "legend", "text", "detail"),
        titles={
            "strip": f"2 · {lead_title(weights, experts)}",
            "text": "3 · Words coloured by their leading expert",
            "detail": "4 · The token under the pointer",
        },
        captions={
            "strip": "Posterior of each expert at each token, from left to right; heights add up to 1.",
            "text": f"{pluralize(len(tokens), 'token')}. Marks name the expert from there on; a stronger colour is "
            "more weight. Point at a word, or use the arrow keys.",
        },
    )
    show_tokens(data, f"{key}.tokens")
    with st.expander("Lines, means and numbers", icon=":material/show_chart:"):
        show_chart(posterior_lines(tokens, weights, experts, looks), key)
        show_chart(average_weights(weights, experts, looks), f"{key}_mean")
