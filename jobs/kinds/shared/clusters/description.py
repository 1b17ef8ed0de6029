"""Description of a clustering, computed again after every change: sizes, terms, documents, overlap with domains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.clusters.documents import ClusteredDocuments
from engine.clusters.edits import Edited
from engine.clusters.fitting import Fitted, label_overlap
from workbench.registry.clusters.clusterings import ClusterFacts


def measures(documents: ClusteredDocuments, num_clusters: int, sources: Sequence[str]) -> dict[str, Any]:
    """Sizes, blank documents, and the overlap of clusters with the documents' domains (figure 16)."""
    names = [sources[number] for number in documents.sources_N.tolist()]
    overlap = label_overlap(documents.labels_N, names, num_clusters)
    return {
        "sizes": documents.sizes(num_clusters),
        "num_bytes": documents.bytes_of_clusters(num_clusters),
        "share_of_longest_tenth": documents.share_of_longest_tenth,
        "num_blank": documents.num_blank,
        "num_pinned": int(documents.is_pinned_N.sum()),
        "overlap": {
            "labels": list(overlap.labels),
            "counts": overlap.counts_LK.tolist(),
            "normalised_mutual_information": overlap.normalised_mutual_information,
        },
    }


def facts(fitted: Fitted, documents: ClusteredDocuments) -> list[ClusterFacts]:
    """Size, terms and nearest documents of each cluster."""
    sizes = documents.sizes(fitted.clustering.clusters.num_clusters)
    return [
        ClusterFacts(size, terms, documents.nearest(number))
        for number, (size, terms) in enumerate(zip(sizes, fitted.words.terms(), strict=True))
    ]


def facts_after(edited: Edited) -> list[ClusterFacts]:
    """The facts of each cluster after an edit, with its former number and the numbers merged into it."""
    return [
        ClusterFacts(
            one.num_documents,
            one.terms,
            one.representatives,
            before,
            changed := number in edited.changed,
            edited.merged if changed else frozenset(),
        )
        for number, (one, before) in enumerate(zip(facts(edited.fitted, edited.documents), edited.before, strict=True))
    ]
