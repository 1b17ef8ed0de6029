"""The map on the screen: click a point to read its document, draw an area to make a domain of what lies in it."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from jobs.queue.submit import submit
from ui.present.charts.cluster_map import By, ClusterMap, cluster_map, legend, map_picture
from ui.present.charts.colours import read_looks
from ui.present.charts.map_regions import describe_regions, draw_regions
from ui.present.pages import EVALUATION, TRAIN
from ui.present.text.clusters import SHOWN_TERMS
from ui.present.text.formatting import listed, plain, pluralize
from ui.studio.clusters.map_answers import show_answers
from ui.studio.clusters.map_selection import JOBS, choose_match, offer_domain, show_search
from ui.studio.job_views.job_view import show_last
from ui.studio.job_views.pending_jobs import show_plan
from ui.widgets.address import choose_one, choose_some, fragment
from ui.widgets.background import fetch_in_background
from ui.widgets.charts_and_tables import areas, click_target, show_chart
from ui.widgets.notices import cannot_change, empty, explain_problems
from ui.widgets.on_demand import scroll_box
from workbench.analysis.scores import document_losses, experts_with_scores
from workbench.answers.cards import ClusteringCard
from workbench.answers.posteriors import ClusteredDocument
from workbench.kinds.kind import parse_spec
from workbench.registry.clusters.cluster_documents import (
    DocumentMatches,
    get_document,
    map_points,
    map_regions,
)
from workbench.registry.clusters.clusterings import get_clustering
from workbench.registry.database import reading
from workbench.store.storage import get_storage

if TYPE_CHECKING:
    from numpy.typing import NDArray

_KEY = "cluster_map"
_CHARACTERS = 3000
_LEGEND = 200  # pixels of the legend at most
_HEIGHT = 320  # of a text, in pixels
_MOST_BOXES = 200  # clusters with a box to tick
_HOW = (
    "Click a point to read its document; scroll to zoom. To make a domain or an expert of an area, draw around it with "
    "the lasso or the box of the map's toolbar, or tick clusters below the map."
)
_COLOURINGS: dict[By, str] = {
    "loss": "Loss",
    "cluster": "Clusters",
    "domain": "Domains",
    "expert": "Experts",
}


def show_map(card: ClusteringCard) -> None:
    """The map with its actions, and the jobs that it submitted last."""
    if not card.metrics["map"]:
        empty("This clustering has no map.", "Find clusters again with a map size above 0, under another name.")
        return
    with st.container():  # there is also one without a job: the map must not move, or it forgets what was drawn on it
        for kind in ("make-domain", "pin-documents"):
            show_last(kind)
        show_plan(JOBS)
    _show(card.name)


@fragment()
def _show(name: str) -> None:
    """A part of the page that a click on the map draws again on its own; what was selected stands in the session."""
    with explain_problems():
        with reading() as session:
            card = get_clustering(session, name)
            chart = map_points(session, get_storage(), name)
            regions = map_regions(session, name)
        matches, choices = _draw_choices(card)
        by, only = choices.by, choices.only
        losses = None if choices.expert is None else _losses(card, choices.expert)
        looks = read_looks().with_new(card.sources)
        shown_map = cluster_map(
            card,
            chart,
            looks,
            by,
            only,
            losses_N=losses,
            matching=None if matches is None else matches.numbers,
        )
        # The map takes the full width until something is selected; what that says stands next to it, or below it on a
        # narrow screen. The map is drawn first, or its selection would be lost with its place.
        with st.container(horizontal=True, gap="medium", key="map_and_answers"):
            with st.container(key="map_itself"):
                picture = map_picture(shown_map, by, has_names=choices.has_names, has_density=choices.has_density)
                draw_regions(picture.figure, regions, looks)
                show_chart(picture, _KEY, lambda: None, selection_modes=("points", "lasso", "box"), words="below")
                st.caption(_HOW)
                if losses is not None:
                    st.caption(plain(_describe_losses(losses, card)))
                if regions:
                    st.caption(plain(describe_regions(regions)))
                scroll_box(legend(shown_map), "Legend of the map", _LEGEND)
                ticked = _show_table(card)
            if matches is not None or ticked or areas(_KEY) or click_target(_KEY):
                with st.container(key="map_answers"):
                    _show_selected(shown_map, only, matches, ticked)


def _show_selected(
    shown_map: ClusterMap, only: Sequence[str], matches: DocumentMatches | None, ticked: Sequence[str]
) -> None:
    card, chosen = shown_map.card, None
    if matches is not None:
        on_map = shown_map.matches.points_P["document"] if shown_map.matches else matches.numbers[:0]
        chosen = choose_match(card, matches, on_map)
    if drawn := areas(_KEY):
        largest = shown_map.largest_inside(drawn)
        if largest is None:
            st.caption("No document lies in this area: draw it around some points.")
        else:
            offer_domain(card, shown_map.num_inside(drawn), largest, drawn, only)
            show_answers(card, shown_map.points_inside(drawn))
    elif ticked:
        clusters = [cluster for cluster in card.clusters if cluster.name in ticked]
        largest = max(clusters, key=lambda cluster: cluster.num_documents).number
        offer_domain(card, sum(cluster.num_documents for cluster in clusters), largest, (), ticked)
        show_answers(card, shown_map.points_inside((), ticked))
    elif point := click_target(_KEY):
        _show_document(card, shown_map.document(*point))
    if chosen is not None:
        _show_document(card, chosen)


def _show_table(card: ClusteringCard) -> list[str]:
    """The table twin of the lasso, for the keyboard: the clusters that are ticked."""
    with st.expander("Choose clusters in a table, without the mouse", icon=":material/checklist:"):
        if len(card.clusters) > _MOST_BOXES:
            st.caption(f"The first {_MOST_BOXES} of {len(card.clusters)}; the command line takes any: --clusters.")
        with st.container(height=_HEIGHT if len(card.clusters) > 8 else "content"):
            return [
                cluster.name
                for cluster in card.clusters[:_MOST_BOXES]
                if st.checkbox(
                    plain(
                        f"{cluster.name}: {pluralize(cluster.num_documents, 'document')}; {listed(cluster.terms, 4)}"
                    ),
                    key=f"cluster_map.tick.{cluster.id}",
                )
            ]


def _losses(card: ClusteringCard, expert: str) -> NDArray[np.float32] | None:
    """The losses of an expert on the documents; None until they are read."""

    def fetch() -> NDArray[np.float32]:
        with reading() as session:
            return document_losses(session, get_storage(), card.name, expert)

    losses: NDArray[np.float32] | None = fetch_in_background(
        "document_losses", (card.id, card.num_documents, expert), fetch, "Reading the stored scores"
    )
    return losses


def _describe_losses(losses: NDArray[np.float32], card: ClusteringCard) -> str:
    return (
        f"{np.isfinite(losses).sum():,} of {pluralize(card.num_documents, 'document')} have a loss: only held-out ones "
        "are scored, and of a long split as many tokens as the evaluation was allowed. Evaluate with more tokens to "
        "see more."
    )


@dataclass(frozen=True)
class _Choices:
    """What the colours mean, the clusters shown, what is drawn over them, and whose losses colour the map."""

    by: By
    only: list[str]
    has_names: bool
    has_density: bool
    expert: str | None


def _draw_choices(card: ClusteringCard) -> tuple[DocumentMatches | None, _Choices]:
    """The matches of the search, and the choices in a row above the map; by loss where any expert is scored here."""
    with reading() as session:
        scored = experts_with_scores(session, card.sources)
    colours, whose, shown, search = st.columns([4, 2, 3, 4], vertical_alignment="bottom")
    by: By = choose_one(
        colours.segmented_control,
        "Coloured by",
        list(_COLOURINGS),
        format_func=_COLOURINGS.__getitem__,
        default="loss" if scored else "cluster",
        key="clusters.by",
        required=True,
    )
    expert = None
    if by == "loss" and scored:
        expert = choose_one(whose.selectbox, "Loss of the expert", scored, key="clusters.loss_of")
    with shown:
        only, has_names, has_density = _choose_shown(card)
    with search:
        matches = show_search(card)
    if by == "loss" and not scored:
        why = "No expert is scored on the held-out text of these domains."
        step = "Evaluate a mixture on them: then the map shows the loss of each document."
        empty(why, step, TRAIN.script, "Evaluate", {"train.what": EVALUATION})
    return matches, _Choices(by, only, has_names, has_density, expert)


def _choose_shown(card: ClusteringCard) -> tuple[list[str], bool, bool]:
    """The clusters shown, and whether names and lines of density are drawn over them."""
    names = [cluster.name for cluster in card.clusters]
    num_shown = len(st.session_state.get(f"clusters.only.{card.id}") or names)
    label = "What is shown" if num_shown == len(names) else f"What is shown: {num_shown} of {len(names)} clusters"
    with st.popover(label, icon=":material/filter_list:", key="map_filter"):
        only = choose_some(
            st.multiselect,
            "Only these clusters",
            names,
            key=f"clusters.only.{card.id}",
            placeholder="all",
            help="Hidden documents are not in an area either. With many clusters colours repeat: show only a few.",
        )
        has_names = st.checkbox("Names of clusters on the map", value=True, key="clusters.names")
        has_density = st.checkbox("Lines of density on the map", value=True, key="clusters.density")
    return only, has_names, has_density


# a document -----------------------------------------------------------------------------------------


def _show_document(card: ClusteringCard, number: int | None) -> None:
    if number is None:
        return
    with reading() as session:
        document = get_document(session, get_storage(), card.name, number)
    cluster = card.clusters[document.cluster]
    with st.container(border=True):
        st.markdown(f"**{plain(cluster.name)}**, {pluralize(cluster.num_documents, 'document')}")
        st.caption(plain(f"Strongest words: {listed(cluster.terms, SHOWN_TERMS)}."))
        show_text(document)
        _offer_pin(card, document)


def show_text(document: ClusteredDocument) -> None:
    """A document with where it came from and its part."""
    marks = [
        "shaped the clusters" if document.is_fitted else "",
        "put here by hand" if document.is_pinned else "",
        "holds no known word" if document.is_blank else "",
    ]
    origin = [document.domain, document.source, document.split, f"id {document.id[:12]}"]
    st.caption(plain(" · ".join(filter(None, [*origin, *marks]))))
    text = document.text[:_CHARACTERS] + ("…" if len(document.text) > _CHARACTERS else "")
    with st.container(border=True):
        scroll_box(f'<div style="white-space:pre-wrap">{html.escape(text)}</div>', "Text of the document", _HEIGHT)


def _offer_pin(card: ClusteringCard, document: ClusteredDocument) -> None:
    others = [cluster.name for cluster in card.clusters if cluster.number != document.cluster]
    if not others:
        return
    with st.popover("Move to another cluster …", icon=":material/push_pin:"):
        st.caption("The assignment is pinned. Experts of both clusters become stale.")
        into = st.selectbox("Cluster", others, key="clusters.pin_into")
        if st.button("Move", key="clusters.pin", disabled=cannot_change()):
            fields = {"clustering": card.name, "cluster": into, "documents": [document.id]}
            st.session_state["pin-documents.job"] = submit(parse_spec({"kind": "pin-documents", **fields}))
            st.rerun()
