"""A clustering that means little says so, with numbers and what to do."""

from __future__ import annotations

from workbench.formatting.clustering_warnings import clustering_warnings


def test_a_clustering_of_an_earlier_version_has_nothing_to_warn_of() -> None:
    assert clustering_warnings({"sizes": [3, 4]}) == []


def test_divided_vectors_text_without_blanks_and_empty_clusters_are_named() -> None:
    metrics = {"sizes": [3, 0, 4, 0], "num_divided": 5, "arbitrary": [2], "unspaced_share": 0.25}
    divided, unspaced, empty = clustering_warnings(metrics)
    assert divided.startswith("5 documents (most of cluster 2) have the same vector as documents of other clusters")
    assert unspaced.startswith("25 % of the letters are in text without blanks between words")
    assert empty == "Clusters 1, 3 are empty and cannot become domains: merge with others."


def test_a_few_foreign_words_are_no_warning() -> None:
    assert clustering_warnings({"sizes": [1], "num_divided": 0, "unspaced_share": 0.1}) == []
