"""What a selection on the map holds: terms, passages, domains, who reads it and how well, and what is predicted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st

from ui.present.text.formatting import listed, plain, pluralize
from ui.present.text.map_answers import describe_cost, describe_domains, describe_gain, reading_rows
from ui.widgets.background import fetch_in_background
from ui.widgets.charts_and_tables import show_table
from workbench.analysis.map_selections import (
    SelectionReadings,
    SelectionText,
    describe_selection,
    read_selection,
)
from workbench.analysis.perplexity_tables import newest_evaluation
from workbench.answers.cards import ClusteringCard
from workbench.registry.database import reading
from workbench.store.storage import get_storage

if TYPE_CHECKING:
    from numpy.typing import NDArray


def show_answers(card: ClusteringCard, points: NDArray[Any]) -> None:
    """The answers for the documents of these points; each part appears once it is read."""
    if not len(points):
        return
    numbers = points["document"].astype("int64")
    selection = (card.id, card.num_documents, hash(numbers.tobytes()))
    with st.container(border=True, key="selection_answers"):
        st.caption(plain(describe_domains([card.sources[source] for source in points["source"].tolist()])))

        def fetch_text() -> SelectionText:
            with reading() as session:
                return describe_selection(session, get_storage(), card.name, numbers)

        text = fetch_in_background("selection_text", selection, fetch_text, "Reading the selected documents")
        if text is not None:
            _show_text(text)

        def fetch_readings() -> SelectionReadings:
            with reading() as session:
                return read_selection(session, get_storage(), card.name, numbers)

        with reading() as session:
            newest = newest_evaluation(session)
        read = fetch_in_background("selection_readings", (selection, newest), fetch_readings, "Reading stored scores")
        if read is not None:
            _show_readings(read)


def _show_text(text: SelectionText) -> None:
    terms = f"Strongest words of {pluralize(text.num_read, 'document')}: {listed(text.terms, len(text.terms))}."
    st.markdown(plain(terms))
    for passage in text.passages:
        st.caption(plain(f"“{passage}”"))


def _show_readings(read: SelectionReadings) -> None:
    if not read.readings:
        st.caption("No two of these documents were scored by an expert: only held-out documents of evaluations are.")
        return
    st.markdown("**Who reads it now, and how well**")
    show_table(reading_rows(read), "selection_readers", "Mean loss of each expert on the selected documents")
    for sentence in filter(None, (describe_gain(read), describe_cost(read.cost))):
        st.caption(plain(sentence))
