"""Clusters in a list and one by one: words, typical documents, name and notes; their sizes and their domains."""

from __future__ import annotations

import streamlit as st

from ui.present.charts.cluster_charts import overlap_picture, sizes_picture
from ui.present.charts.colours import read_looks
from ui.present.text.clusters import changes_words, cluster_row
from ui.present.text.formatting import listed, plain, pluralize
from ui.studio.clusters.cluster_map_view import show_text
from ui.widgets.address import choose_one
from ui.widgets.background import fetch_in_background, forget
from ui.widgets.data_table import show_table
from ui.widgets.notices import explained, keep
from ui.widgets.rights import cannot_change
from ui.widgets.show_chart import show_chart
from workbench.answers.cards import ClusterCard, ClusteringCard
from workbench.answers.posteriors import TextChanges
from workbench.registry.clusters import cluster_documents
from workbench.registry.clusters.clusterings import describe_cluster
from workbench.registry.database import reading, transaction
from workbench.settings import get_settings
from workbench.store.storage import get_storage


def show_clusters(card: ClusteringCard) -> None:
    """Every cluster in a row, then one of them whole, then their sizes."""
    st.markdown("##### Clusters and their strongest words")
    show_table([cluster_row(one) for one in card.clusters], "clusters", f"Clusters of {card.name}")
    names = [cluster.name for cluster in card.clusters]
    name = choose_one(st.selectbox, "Cluster", names, key=f"clusters.one.{card.id}")
    _show_cluster(card, card.clusters[names.index(name)])
    show_chart(sizes_picture(card, read_looks()), "cluster_sizes")


def _show_cluster(card: ClusteringCard, cluster: ClusterCard) -> None:
    with st.container(border=True):
        st.markdown(f"**{plain(cluster.name)}**, {pluralize(cluster.num_documents, 'document')}")
        st.caption(plain(f"Strongest words: {listed(cluster.terms, len(cluster.terms))}."))
        _show_name_form(cluster)
        st.markdown("The documents nearest to its centre")
        with explained(), reading() as session:
            storage = get_storage(get_settings())
            documents = [
                cluster_documents.get_document(session, storage, card.name, id) for id in cluster.representatives
            ]
            for tab, document in zip(st.tabs([str(n + 1) for n in range(len(documents))]), documents, strict=True):
                with tab:
                    show_text(document)


def _show_name_form(cluster: ClusterCard) -> None:
    left, right = st.columns([2, 3])
    name = left.text_input("Name", cluster.name, key=f"clusters.name.{cluster.id}")
    notes = right.text_input("Notes", cluster.notes, key=f"clusters.notes.{cluster.id}")
    if st.button(
        "Save", key="clusters.save", disabled=cannot_change() or (name, notes) == (cluster.name, cluster.notes)
    ):
        with explained():
            with transaction() as session:
                describe_cluster(session, cluster.id, name, notes)
            keep(f"Saved: “{name}”. No document moved, and no expert became stale.")
            st.rerun()


def show_overlap(card: ClusteringCard) -> None:
    """How clusters go with the domains that their documents came from (figure 16)."""
    show_chart(overlap_picture(card, read_looks()), "cluster_overlap")


def show_changes(card: ClusteringCard) -> None:
    """Which documents are missing or new since the clustering was made, and how many."""
    st.caption("Compares every document that was clustered with the text of the same domains as it is now.")
    key = f"clusters.changes.{card.id}"
    if st.button("Compare with the current text", icon=":material/difference:", key="clusters.compare"):
        st.session_state[key] = True
        forget("cluster_changes")
    if not st.session_state.get(key):
        return

    def fetch() -> TextChanges:
        with reading() as session:
            return cluster_documents.changes(session, get_storage(get_settings()), card.name)

    changes: TextChanges | None = fetch_in_background(
        "cluster_changes", card.id, fetch, "Reading the ids of all documents"
    )
    if changes is None:
        return
    notice = st.warning if changes.num_missing or changes.num_new else st.success
    notice(plain(changes_words(changes)))
    listed_ids = {"missing": changes.missing, "new": changes.new}
    rows = [{"document": id, "what": what} for what, ids in listed_ids.items() for id in ids]
    if rows:
        show_table(rows, "changed_documents", "The first documents that are missing or new")
        st.caption(
            "Find clusters again under another name to take new text in; what is missing must be imported again."
        )
