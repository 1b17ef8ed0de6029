"""Clusters of documents: find, view and change them, make domains of them, train on each."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from ui.present.pages import CLUSTERS
from ui.present.text.clusters import clustering_row, made_words, stale_words
from ui.present.text.formatting import ago, plain
from ui.studio.clusters.cluster_edit import show_edits
from ui.studio.clusters.cluster_grid_view import show_grid
from ui.studio.clusters.cluster_map_view import show_map
from ui.studio.clusters.cluster_training import show_training
from ui.studio.clusters.cluster_view import show_changes, show_clusters, show_overlap
from ui.studio.forms.clustering_form import show_finding
from ui.studio.job_views.pending_jobs import empty_until
from ui.studio.shared.examples import show_example_clusters
from ui.widgets.address import choose_one
from ui.widgets.data_table import show_table
from ui.widgets.page_head import show_head
from workbench.answers.cards import ClusteringCard
from workbench.registry.clusters.clusterings import list_clusterings
from workbench.registry.database import reading

PARTS = LOOK, FIND = "Look at clusters", "Find clusters"


def show() -> None:
    """Draws the page."""
    right = show_head(CLUSTERS)
    with reading() as session:
        cards = list_clusterings(session)
    if not cards:
        why, step = (
            "There is no clustering yet.",
            "Find clusters below: groups of documents that use the same words.",
        )
        empty_until("find-clusters", why, step)
        show_finding()
        show_example_clusters()
        return
    part = choose_one(
        right.segmented_control,
        "Part",
        PARTS,
        default=LOOK,
        key="clusters.part",
        required=True,
        label_visibility="collapsed",
    )
    if part == FIND:
        show_finding()
    else:
        _show_list(cards)


def _show_list(cards: list[ClusteringCard]) -> None:
    by_name = {card.name: card for card in cards}
    left, right = st.columns([3, 9], vertical_alignment="bottom")
    card = by_name[choose_one(left.selectbox, "Clustering", list(by_name), key="clusters.name")]
    view = choose_one(
        right.segmented_control, "View", list(_VIEWS), default=_MAP, key="clusters.view", required=True, wrap=True
    )
    st.caption(plain(f"{made_words(card)} Found {ago(card.created_at)}."))
    if stale := stale_words(card):
        st.warning(plain(f"{stale} “{_TRAIN}” offers to retrain only those."), icon=":material/update:")
    _VIEWS[view](card)
    if len(cards) > 1:
        with st.expander(f"All {len(cards)} clusterings", icon=":material/table:"):
            rows = [clustering_row(one) for one in cards]
            show_table(rows, "clusterings", "Clusterings, and what was made from them")


_MAP, _TRAIN = "Map", "Train on them"
_VIEWS: dict[str, Callable[[ClusteringCard], None]] = {
    _MAP: show_map,
    "Words & documents": show_clusters,
    "Domains they came from": show_overlap,
    "Change": show_edits,
    _TRAIN: show_training,
    "Temperature & top k": show_grid,
    "Text since then": show_changes,
}


if __name__ == "__main__":
    show()
