"""The map on the screen: click a point to read its document, draw an area to make a domain of what lies in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from jobs.queue.submit import submit
from ui.present.charts.cluster_map import By, ClusterMap, cluster_map, legend, map_picture
from ui.present.charts.colours import read_looks
from ui.present.text.clusters import SHOWN_TERMS
from ui.present.text.formatting import listed, plain, pluralize
from ui.studio.forms.job_form import show_last
from ui.widgets.address import choose_one, choose_some
from ui.widgets.notices import empty, explained
from ui.widgets.show_chart import areas, clicked_point, show_chart
from workbench.answers.documents import ClusteredDocument
from workbench.registry.cards import ClusteringCard
from workbench.registry.clusters.cluster_documents import get_document, map_points
from workbench.registry.clusters.clusterings import get_clustering
from workbench.registry.database import reading
from workbench.settings import get_settings
from workbench.specs import parse_spec
from workbench.store.storage import get_storage

_KEY = "cluster_map"
_CHARACTERS = 3000
_MANY, _LEGEND = 40, 130  # names in a legend, and pixels of its height with more
_HEIGHT = 320  # of a text, in pixels
_SHORT, _LINES = 400, 8  # characters and lines that need no such height
_HOW = (
    "Click a point to read its document; scroll to zoom. To make a domain of an area, draw around it with the lasso or "
    "the box of the map's toolbar."
)
_COLOURINGS: dict[By, str] = {"cluster": "Clusters", "domain": "Domains they came from"}


def show_map(card: ClusteringCard) -> None:
    """The map with its actions, and the jobs that it submitted last."""
    if not card.metrics["map"]:
        empty("This clustering has no map.", "Find clusters again with a map size above 0, under another name.")
        return
    with st.container():  # there is one without a job, too: the map must not move, or it forgets what was drawn on it
        for kind in ("make-domain", "pin-documents"):
            show_last(kind)
    _show(card.name)


@st.fragment
def _show(name: str) -> None:
    """A part of the page that is drawn again by itself: a click on the map leaves the rest alone."""
    with explained():
        with reading() as session:
            card = get_clustering(session, name)
            chart = map_points(session, get_storage(get_settings()), name)
        by, only = _draw_choices(card)
        shown_map = cluster_map(card, chart, read_looks().with_new(card.sources), by, only)
        _show_legend(shown_map)
        chart_side, reading_side = st.columns([5, 3], gap="medium")
        with chart_side:
            show_chart(map_picture(shown_map, by), _KEY, _nothing, selection_modes=("points", "lasso", "box"))
        with reading_side:
            _show_selected(shown_map, only)


def _show_selected(shown_map: ClusterMap, only: Sequence[str]) -> None:
    if drawn := areas(_KEY):
        _offer_domain(shown_map, drawn, only)
    elif point := clicked_point(_KEY):
        _show_document(shown_map.card, shown_map.document(*point))
    else:
        st.info(_HOW)


def _show_legend(shown_map: ClusterMap) -> None:
    """The names of the colours; many of them can be scrolled."""
    with st.container(height=_LEGEND if len(shown_map.layers) > _MANY else "content"):
        st.html(legend(shown_map))


def _nothing() -> None:
    """What was selected stands in the session; this alone makes Streamlit draw the part again."""


def _draw_choices(card: ClusteringCard) -> tuple[By, list[str]]:
    left, right = st.columns([2, 3])
    by: By = choose_one(
        left.segmented_control,
        "Coloured by",
        list(_COLOURINGS),
        format_func=_COLOURINGS.__getitem__,
        default="cluster",
        key="clusters.by",
        required=True,
    )
    names = [cluster.name for cluster in card.clusters]
    only = choose_some(
        right.multiselect,
        "Only these clusters",
        names,
        key=f"clusters.only.{card.id}",
        placeholder="all",
        help="Hidden documents are not in an area either. With many clusters colours repeat: show only a few.",
    )
    return by, only


# a document -----------------------------------------------------------------------------------------


def _show_document(card: ClusteringCard, number: int | None) -> None:
    if number is None:
        return
    with reading() as session:
        document = get_document(session, get_storage(get_settings()), card.name, number)
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
    with st.container(border=True, height=_HEIGHT if len(text) > _SHORT or text.count("\n") > _LINES else "content"):
        st.text(text)


def _offer_pin(card: ClusteringCard, document: ClusteredDocument) -> None:
    others = [cluster.name for cluster in card.clusters if cluster.number != document.cluster]
    if not others:
        return
    with st.popover("Move to another cluster …", icon=":material/push_pin:"):
        st.caption("The assignment is pinned. Experts of both clusters become stale.")
        into = st.selectbox("Cluster", others, key="clusters.pin_into")
        if st.button("Move", key="clusters.pin"):
            _submit("pin-documents", clustering=card.name, cluster=into, documents=[document.id])


# an area --------------------------------------------------------------------------------------------


def _offer_domain(shown_map: ClusterMap, drawn: Sequence[str], only: Sequence[str]) -> None:
    number = shown_map.num_inside(drawn)
    if not number:
        st.caption("No document lies in this area: draw it around some points.")
        return
    with st.container(border=True):
        st.markdown(f"**{pluralize(number, 'document')} in the area**")
        st.caption("Only what is on the map. Documents that are held out stay held out.")
        name = st.text_input("Name of the new domain", key="make-domain.name", placeholder="what they are about")
        if st.button(f"Make a domain of these {number:,}", type="primary", key="make-domain.submit"):
            _submit("make-domain", clustering=shown_map.card.name, name=name, areas=list(drawn), clusters=list(only))


def _submit(kind: str, **fields: Any) -> None:
    st.session_state[f"{kind}.job"] = submit(parse_spec({"kind": kind, **fields}))
    st.rerun()
