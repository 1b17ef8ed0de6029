"""A clustering as sentences and rows of tables."""

from __future__ import annotations

from typing import Any

from ui.present.text.formatting import listed, pluralize
from workbench.answers.cards import ClusterCard, ClusteringCard
from workbench.answers.posteriors import TextChanges
from workbench.formatting.clustering_warnings import clustering_warnings

SHOWN_TERMS = 8
_METHODS = {"balanced": "balanced k-means", "unbalanced": "k-means", "random": "at random"}
_VECTORS = {"tfidf": "their words (tf-idf)", "hidden_states": "hidden states"}


def describe_clustering(card: ClusteringCard) -> str:
    """A clustering in a sentence: `600 documents of a and b in 4 clusters, by balanced k-means of their words …`"""
    method = _METHODS[card.config["clusters"]["method"]]
    vectors = _VECTORS[card.config["embedder"]["kind"]] + (f" of {card.seed}" if card.seed else "")
    what = f"{pluralize(card.num_documents, 'document')} of {listed(card.sources)}"
    text = (
        f"{what} in {pluralize(len(card.clusters), 'cluster')}, by {method} of {vectors}; {card.num_fitted:,} of them"
    )
    return " ".join([text, "fitted the clusters, the others were assigned to the nearest.", *_remarks(card.metrics)])


def _remarks(metrics: dict[str, Any]) -> list[str]:
    """Remarks on blank, duplicate and pinned documents, and on clusters that mean little; none if there are none."""
    remarks = {
        "num_blank": "without a known word share one position",
        "num_duplicates": "are in several domains and count once",
        "num_pinned": "were pinned by hand",
    }
    counts = [f"{metrics[key]:,} {words}." for key, words in remarks.items() if metrics.get(key)]
    return [*counts, *clustering_warnings(metrics)]


def clustering_row(card: ClusteringCard) -> dict[str, Any]:
    """A row for the list of clusterings."""
    return {
        "clustering": card.name,
        "method": card.config["clusters"]["method"],
        "clusters": len(card.clusters),
        "documents": card.num_documents,
        "of domains": ", ".join(card.sources),
        "shared with the domains (NMI)": card.metrics["overlap"]["normalised_mutual_information"],
        "experts": len({name for cluster in card.clusters for name in cluster.experts}),
        "stale experts": len(card.stale_experts),
    }


def cluster_row(cluster: ClusterCard) -> dict[str, Any]:
    """A row for the list of clusters."""
    return {
        "no.": cluster.number,
        "cluster": cluster.name,
        "documents": cluster.num_documents,
        "strongest words": ", ".join(cluster.terms[:SHOWN_TERMS]),
        "domain": cluster.domain or "",
        "experts": ", ".join(cluster.experts),
        "stale": "stale" if cluster.stale else "",
        "notes": cluster.notes,
    }


def describe_stale_experts(card: ClusteringCard) -> str:
    """Which experts were trained on documents that have changed; empty for none."""
    stale = card.stale_experts
    if not stale:
        return ""
    own = "its documents" if len(stale) == 1 else "their documents"
    return f"{pluralize(len(stale), 'expert')} of changed clusters, so {own} have changed: {listed(stale)}."


def describe_text_changes(changes: TextChanges) -> str:
    """How text differs from what was clustered."""
    missing, new = changes.num_missing, changes.num_new
    if not missing and not new:
        return "Nothing changed: the domains hold exactly the clustered documents."
    text = [
        f"{pluralize(number, 'document')} {words}"
        for number, words in ((missing, "of the clustering are missing"), (new, "are new"))
        if number
    ]
    return f"{'; '.join(text)}."
