"""What makes a clustering doubtful, in sentences made of its metrics."""

from __future__ import annotations

from typing import Any

from workbench.formatting.number_format import pluralize
from workbench.formatting.number_format import share as formatted

MOST_IN_TENTH = 0.5  # of all bytes in the longest tenth of the documents; above it their lengths are very unequal
MOST_UNSPACED = 0.1  # of the letters; above it many clauses count as words


def clustering_warnings(metrics: dict[str, Any]) -> list[str]:
    """Warnings about clusters that mean little or are empty; a clustering of an earlier version has fewer metrics."""
    return [*_warn_of_equal_vectors(metrics), *_warn_of_unspaced_text(metrics), *_warn_of_empty_clusters(metrics)]


def _warn_of_equal_vectors(metrics: dict[str, Any]) -> list[str]:
    if not (number := metrics.get("num_divided")):
        return []
    arbitrary = metrics.get("arbitrary") or []
    which = f" (most of {_clusters(arbitrary)})" if arbitrary else ""
    have = "has" if number == 1 else "have"
    return [
        f"{pluralize(number, 'document')}{which} {have} the same vector as documents of other clusters: which of these "
        "clusters holds which of them is arbitrary."
    ]


def _warn_of_unspaced_text(metrics: dict[str, Any]) -> list[str]:
    unspaced = metrics.get("unspaced_share", 0.0)
    if unspaced <= MOST_UNSPACED:
        return []
    return [
        f"{formatted(unspaced)} of the letters are in text without blanks between words, such as Chinese, Thai "
        "or one long run: each run of characters counts as one word. Let a seed model read the documents: "
        "--embedder hidden_states --seed-model NAME."
    ]


def _warn_of_empty_clusters(metrics: dict[str, Any]) -> list[str]:
    empty = [number for number, size in enumerate(metrics["sizes"]) if not size]
    if not empty:
        return []
    become = "is empty and cannot become a domain" if len(empty) == 1 else "are empty and cannot become domains"
    return [f"{_clusters(empty).capitalize()} {become}: merge with others."]


def _clusters(numbers: list[int]) -> str:
    """`cluster 3`, `clusters 3, 5`."""
    return f"cluster{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


def unequal_lengths(metrics: dict[str, Any]) -> list[str]:
    """A warning about a clustering whose documents have very unequal lengths; none if these are not known."""
    share = metrics.get("share_of_longest_tenth")
    if share is None or share <= MOST_IN_TENTH:
        return []
    return [
        f"The lengths of the documents are very unequal: the longest tenth holds {formatted(share)} of the bytes. "
        "Clusters are balanced by documents, not by text. Find them again with --piece-length (characters), which cuts "
        "long documents, or import with it."
    ]
