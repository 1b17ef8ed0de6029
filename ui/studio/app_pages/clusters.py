"""Clusters of documents: find, view and change them, make domains of them, train on each."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from jobs.plans.clusterings import submit_find
from ui.present.forms.form_choices import missing, offers_now
from ui.present.pages import CLUSTER_WORDS, CLUSTERS, CORPORA, SEEDS
from ui.present.text.clusters import clustering_row, describe_clustering, describe_stale_experts
from ui.present.text.formatting import ago, plain
from ui.studio.clusters.cluster_map_view import show_map
from ui.studio.clusters.cluster_view import (
    show_changes,
    show_clusters,
    show_edits,
    show_grid,
    show_overlap,
    show_training,
)
from ui.studio.job_views.job_view import show_form_and_job
from ui.studio.job_views.pending_jobs import empty_until, show_plan
from ui.studio.shared.examples import show_example
from ui.widgets.address import choose_one
from ui.widgets.charts_and_tables import show_table
from ui.widgets.notices import empty
from ui.widgets.page_head import show_head
from workbench.answers.cards import ClusteringCard
from workbench.kinds.clusters import FindClusters
from workbench.registry.clusters.clusterings import list_clusterings
from workbench.registry.database import reading

_KIND = "find-clusters"
_SELDOM = (
    "max_iterations",
    "max_tokens",
    "numbers",
    "scaling",
    "dimension",
    "max_words",
    "sample_size",
    "map_size",
    "shard_size",
    "seed",
)
_METHODS = {
    "balanced": "Balanced: all of one size (the paper)",
    "unbalanced": "Unbalanced: plain k-means",
    "random": "At random: the paper's control",
}
_EMBEDDERS = {"tfidf": "Its words (the paper)", "hidden_states": "How a seed model reads it"}


def show_finding() -> None:
    """The form, and its jobs live beneath it."""
    offers = offers_now()
    if missing(offers, "domains"):
        empty_until("import-corpus", "There is no text yet.", "Import some text first.", CORPORA.script, "Go to it")
        return
    left, right = st.columns(2)
    method = left.selectbox(
        "How they are found", list(_METHODS), format_func=_METHODS.__getitem__, key=f"{_KIND}.method"
    )
    embedder = right.selectbox(
        "A document is known by", list(_EMBEDDERS), format_func=_EMBEDDERS.__getitem__, key=f"{_KIND}.embedder"
    )
    if embedder == "hidden_states" and missing(offers, "seed_model"):
        empty(
            "There is no seed model yet.",
            "Make one, or group documents by their words.",
            SEEDS.script,
            "Make a seed model",
        )
        return
    implied = {"seed_model", "max_tokens"} if embedder == "tfidf" else set()
    implied |= {"max_iterations"} if method == "random" else set()
    show_form_and_job(
        _KIND,
        offers,
        "Find clusters",
        skip=("method", "embedder", *implied),
        given={("method",): method, ("embedder",): embedder},
        tucked=_SELDOM,
        send=_send,
    )
    show_plan(_KIND)


def _send(spec: FindClusters) -> str:
    ids = st.session_state[f"{_KIND}.jobs"] = submit_find(spec)
    return ids[-1]


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
        show_example(CLUSTERS)
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
    st.caption(plain(f"{describe_clustering(card)} Found {ago(card.created_at)}."))
    if stale := describe_stale_experts(card):
        st.warning(plain(f"{stale} “{_TRAIN}” offers to retrain only those."), icon=":material/update:")
    _VIEWS[view](card)
    if len(cards) > 1:
        with st.expander(f"All {len(cards)} clusterings", icon=":material/table:"):
            rows = [clustering_row(one) for one in cards]
            show_table(rows, "clusterings", "Clusterings, and what was made from them")


_MAP, _TRAIN = "Map", "Train on them"
_VIEWS: dict[str, Callable[[ClusteringCard], None]] = {
    _MAP: show_map,
    CLUSTER_WORDS: show_clusters,
    "Domains they came from": show_overlap,
    "Change": show_edits,
    _TRAIN: show_training,
    "Temperature & top k": show_grid,
    "Text since then": show_changes,
}


if __name__ == "__main__":
    show()
