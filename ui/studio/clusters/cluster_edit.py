"""Edits of a clustering: merge clusters, split one, delete it. Only what changes becomes stale."""

from __future__ import annotations

import streamlit as st

from ui.present.forms.questions import Offers
from ui.present.text.formatting import plain
from ui.studio.forms.job_form import show_form_and_job
from ui.widgets.fields import Answers
from ui.widgets.notices import explained, keep
from ui.widgets.rights import cannot_change
from workbench.answers.cards import ClusteringCard
from workbench.registry.clusters.clusterings import delete_clustering
from workbench.registry.database import transaction

_TUCKED = ("sample_size", "seed")


def show_edits(card: ClusteringCard) -> None:
    """The forms, each with its job beneath it."""
    st.caption(
        "Experts of clusters that change become stale, and can be retrained; all others stay as they are. "
        "To put single documents elsewhere, click them on the map."
    )
    names = [cluster.name for cluster in card.clusters]
    offers: Offers = {"clusters": names, "cluster": names}
    given: Answers = {("clustering",): card.name}
    left, right = st.columns(2, gap="large")
    with left:
        st.markdown("##### Merge clusters")
        show_form_and_job("merge-clusters", offers, "Merge", skip=("clustering",), given=given)
    with right:
        st.markdown("##### Split a cluster")
        show_form_and_job("split-cluster", offers, "Split", skip=("clustering",), given=given, tucked=_TUCKED)
    _show_deletion(card)


def _show_deletion(card: ClusteringCard) -> None:
    with st.popover("Delete the clustering …", icon=":material/delete:"):
        st.markdown(plain(f"Deletes {card.name} with its map. The domains that were made of it stay."))
        if st.button("Delete for good", type="primary", key="clusters.delete", disabled=cannot_change()):
            with explained():
                with transaction() as session:
                    delete_clustering(session, card.name)
                keep(f"“{card.name}” is deleted.")
                st.rerun()
