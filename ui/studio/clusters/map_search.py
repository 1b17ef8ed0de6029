"""Search over the documents of a clustering and the words of its clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from ui.present.text.formatting import listed, plain, pluralize
from ui.widgets.address import write_text
from ui.widgets.background import fetch_in_background
from workbench.answers.cards import ClusteringCard
from workbench.registry.clusters.cluster_documents import DocumentMatches, search_documents
from workbench.registry.database import reading
from workbench.settings import get_settings
from workbench.store.storage import get_storage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_SHOWN = 8  # clusters in a sentence


def show_search(card: ClusteringCard) -> DocumentMatches | None:
    """The field; the matching documents once it holds words and they were found."""
    text = write_text(
        st.text_input,
        "Find words in documents",
        key="clusters.find",
        placeholder="all of these words, in upper or lower case",
    )
    words = text.split()
    if not words:
        return None
    if named := clusters_with(card, words):
        st.caption(plain(f"Clusters with such words: {listed(named, _SHOWN)}."))

    def fetch() -> DocumentMatches:
        with reading() as session:
            return search_documents(session, get_storage(get_settings()), card.name, words)

    matches: DocumentMatches | None = fetch_in_background(
        "cluster_search", (card.id, card.num_documents, tuple(words)), fetch, "Reading the documents"
    )
    return matches


def clusters_with(card: ClusteringCard, words: Sequence[str]) -> list[str]:
    """The clusters whose name or strongest words hold one of these words."""
    wanted = [word.lower() for word in words]
    return [
        cluster.name
        for cluster in card.clusters
        if any(word in text.lower() for word in wanted for text in (cluster.name, *cluster.terms))
    ]


def choose_match(card: ClusteringCard, matches: DocumentMatches, on_map: NDArray[np.int64]) -> int | None:
    """The list of matches; the number of the chosen document."""
    number = len(matches.numbers)
    if not number:
        st.info("No document holds all of these words.")
        return None
    st.markdown(f"**{pluralize(number, 'document')}**, {len(on_map):,} of them on the map")
    shown = list(matches.passages)
    if number > len(shown):
        st.caption(f"The first {len(shown)} are listed; on the map all are pointed out.")
    with st.container(height=260 if len(shown) > 4 else "content"):
        chosen: int | None = st.radio(
            "Matches",
            shown,
            index=None,
            format_func=lambda one: plain(matches.passages[one]),
            key=f"cluster_map.match.{card.id}.{hash(tuple(shown))}",
            label_visibility="collapsed",
        )
    return chosen
