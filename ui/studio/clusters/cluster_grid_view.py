"""The grid of temperatures and top-ks of a mixture on a clustering, from the API server."""

from __future__ import annotations

import streamlit as st

from engine.text.split_names import HeldOutSplit
from ui.present.charts.cluster_grid import grid_picture, temperature_words
from ui.present.missing_scores import gap_words
from ui.present.text.formatting import moment, plain
from ui.studio.job_views.pending_jobs import empty_until_scored
from ui.studio.mixtures.mixture_controls import saved_request
from ui.widgets.address import choose_one
from ui.widgets.background import ask_scores
from ui.widgets.notices import empty
from ui.widgets.show_chart import show_chart
from ui.widgets.split_choice import choose_split
from workbench.answers.cards import ClusteringCard
from workbench.questions.cluster_grid import ClusterGrid, ClusterGridRequest
from workbench.registry import mixtures
from workbench.registry.database import reading

_ALL = "All of it"


def show_grid(card: ClusteringCard) -> None:
    """Perplexities at every temperature and top-k of one mixture that weighs by nearness to these clusters."""
    with reading() as session:
        ours = {one.name: one for one in mixtures.list_mixtures(session) if one.gate.get("clustering") == card.id}
    if not ours:
        why = "No mixture weighs its experts by nearness to these clusters yet."
        empty(why, "“Train on them” above trains a model on each cluster, and makes a mixture with such a gate.")
        return
    left, right = st.columns([3, 1], vertical_alignment="bottom")
    name = choose_one(left.selectbox, "Mixture", list(ours), key="clusters.grid_of")
    split = choose_split(right, "clusters.grid_split")
    question, doing = ClusterGridRequest(mixture=name, split=split), "Mixing the stored scores with every setting"
    if grid := ask_scores("cluster_grid", question, doing, saved_request(ours[name])):
        _show(grid, name, split)


def _show(grid: ClusterGrid, mixture: str, split: HeldOutSplit) -> None:
    if not grid.domains:
        why = gap_words(grid.experts, split)
        empty_until_scored(why, "Evaluate the mixture once.", mixture, split)
        return
    by_domain = {row.domain: row.perplexity for row in grid.domains}
    text = choose_one(st.selectbox, "Text", [_ALL, *by_domain], key="clusters.grid_text")
    show_chart(grid_picture(grid, by_domain.get(text, grid.perplexity)), "cluster_grid")
    caption = f"Exact, from stored scores of the {split} split, in {moment(grid.seconds)}; all experts weigh alike."
    st.caption(plain(caption))
    if grid.proposed:
        st.markdown(plain(temperature_words(grid.proposed)))
