"""Hits of a search in words, and the pages that show them."""

from __future__ import annotations

from collections.abc import Mapping

from engine.methods.registry import method_of
from ui.present.pages import CLUSTER_WORDS, CLUSTERS, PAGE_OF, Page
from workbench.answers.search import SearchedKind, SearchGroup, SearchHit

GROUP_TITLES: Mapping[SearchedKind, str] = {
    "expert": "Experts",
    "mixture": "Mixtures",
    "domain": "Domains",
    "seed": "Seed models",
    "clustering": "Clusterings",
    "cluster": "Clusters",
    "job": "Jobs",
    "report": "Reports",
}


def place_of(kind: SearchedKind, hit: SearchHit) -> tuple[Page, dict[str, str]]:
    """The page that shows a hit, and what is chosen on it."""
    if kind == "cluster":
        chosen = {"clusters.view": CLUSTER_WORDS, f"clusters.one.{hit.clustering_id}": hit.name}
        return CLUSTERS, {"clusters.name": hit.detail, **chosen}
    page, key = PAGE_OF[kind]
    return page, {key: hit.id if kind in ("job", "report") else hit.name}


def icon_of(kind: SearchedKind) -> str:
    """The icon of the page that shows a kind."""
    return CLUSTERS.icon if kind == "cluster" else PAGE_OF[kind][0].icon


def detail_of(kind: SearchedKind, hit: SearchHit) -> str:
    """The detail of a hit in words: of an expert the title of its method."""
    return method_of(hit.detail).title if kind == "expert" else hit.detail


def describe_rest(group: SearchGroup) -> str:
    """How many hits are not listed, and how to see fewer; empty where all are."""
    rest = group.total - len(group.hits)
    return f"{rest:,} more. Add a word to see fewer." if rest else ""
