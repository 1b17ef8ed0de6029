"""What clusters are about, and where they lie on the map."""

from __future__ import annotations

import sys
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
import torch
from tqdm import tqdm

from engine.clusters import umap_projection
from engine.clusters.centroids import Clusters
from engine.clusters.config import ClusterConfig, TfidfConfig
from engine.clusters.embedders.tfidf_svd import TfidfEmbedder, fit_tfidf
from engine.clusters.fitting import label_overlap, top_terms
from engine.clusters.kmeans import find_clusters
from engine.clusters.umap_projection import Map, load_map, project
from engine.errors import EngineError
from engine.events import Progress
from engine.long_calls import BAR_OPTIONS

SUBJECTS = {
    "law": ["court", "appeal", "plaintiff"],
    "cake": ["sugar", "eggs", "butter"],
    "sea": ["ship", "sail", "bay"],
}


def texts_of(num_each: int) -> tuple[list[str], list[str]]:
    """Texts on three subjects, with the subject of each."""
    generator = np.random.default_rng(0)
    names = [name for name in SUBJECTS for _ in range(num_each)]
    return [" ".join(generator.choice(SUBJECTS[name], 6)) for name in names], names


def fitted(texts: list[str], scaling: str = "standardise") -> tuple[TfidfEmbedder, Clusters]:
    *_, embedder = fit_tfidf(texts, TfidfConfig(dimension=3, scaling=scaling))  # type: ignore[arg-type]
    assert isinstance(embedder, TfidfEmbedder)
    *_, clusters = find_clusters(embedder.embed(texts).vectors_ND, ClusterConfig("balanced", 3))
    assert isinstance(clusters, Clusters)
    return embedder, clusters


@pytest.mark.parametrize("scaling", ["standardise", "unit_rows"])
def test_top_terms_are_the_words_of_the_subject(scaling: str) -> None:
    texts, names = texts_of(12)
    embedder, clusters = fitted(texts, scaling)
    result = top_terms(embedder, clusters.centres_KD, 3)
    for number, terms in enumerate(result):
        subject = names[int(np.flatnonzero(clusters.labels_N == number)[0])]
        assert sorted(terms) == sorted(SUBJECTS[subject])


def test_terms_are_words_of_the_text_and_no_placeholders() -> None:
    texts = [
        f"{' '.join([number] * 9)} <PHONE_NUMBER> {word}" for word in ("court", "sugar", "ship") for number in "12"
    ]
    embedder, clusters = fitted([text.replace("1", "10").replace("2", "20") for text in texts])
    assert {"#NUMBER", "phone_number"} <= set(embedder.vocabulary)
    assert {term for terms in top_terms(embedder, clusters.centres_KD) for term in terms} == {"court", "sugar", "ship"}


def test_a_long_word_is_cut_for_tables() -> None:
    embedder, clusters = fitted([f"{letter * 400} {letter}b" for letter in "xyz" for _ in range(4)])
    terms = top_terms(embedder, clusters.centres_KD, 6)[0]
    assert {len(term) for term in terms} == {2, 30}
    assert sum(term.endswith("…") for term in terms) == 3


def test_clusters_that_are_the_labels_have_all_information() -> None:
    result = label_overlap(np.array([1, 1, 0, 0], dtype=np.int32), ["a", "a", "b", "b"], 2)
    assert result.labels == ("a", "b")
    assert result.counts_LK.tolist() == [[0, 2], [2, 0]]
    assert result.normalised_mutual_information == pytest.approx(1)


def test_clusters_that_ignore_the_labels_have_none() -> None:
    result = label_overlap(np.array([0, 1, 0, 1], dtype=np.int32), ["a", "a", "b", "b"], 3)
    assert result.normalised_mutual_information == pytest.approx(0, abs=1e-9)


def test_documents_without_a_label_are_left_out() -> None:
    result = label_overlap(np.array([0, 1, 1], dtype=np.int32), ["a", None, "b"], 2)
    assert result.counts_LK.tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(("names", "words"), [([None, None], "has a label"), (["a"], "1 labels for 2 documents")])
def test_labels_that_say_nothing_are_refused(names: list[str | None], words: str) -> None:
    with pytest.raises(EngineError, match=words):
        label_overlap(np.zeros(2, dtype=np.int32), names, 2)


def map_of(vectors: np.ndarray, num_fitted: int, seed: int = 0) -> Map:
    *progress, result = project(vectors, num_fitted=num_fitted, seed=seed)
    assert all(isinstance(one, Progress) for one in progress)
    assert isinstance(result, Map)
    return result


@pytest.mark.long
@pytest.mark.slow
def test_a_map_leaves_the_number_of_threads_as_it_was() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        list(project(np.random.default_rng(0).normal(size=(40, 5))))
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_a_map_says_which_documents_shaped_it_and_puts_the_rest_near_their_like(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    centres = np.eye(3, 10) * 10
    vectors = np.concatenate([centre + generator.normal(size=(40, 10)) for centre in centres])
    result = map_of(vectors, 60)
    assert result.coordinates_N2.dtype == np.float32
    assert result.coordinates_N2.shape == (120, 2)
    assert np.isfinite(result.coordinates_N2).all()
    assert result.is_fitted_N.sum() == 60
    subjects = np.repeat([0, 1, 2], 40)
    middles = np.array(
        [result.coordinates_N2[result.is_fitted_N & (subjects == number)].mean(0) for number in range(3)]
    )
    nearest = np.linalg.norm(result.coordinates_N2[:, None] - middles, axis=2).argmin(1)
    assert (nearest == subjects)[~result.is_fitted_N].mean() > 0.9
    result.save(tmp_path)
    loaded = load_map(tmp_path)
    np.testing.assert_array_equal(loaded.coordinates_N2, result.coordinates_N2)
    np.testing.assert_array_equal(loaded.is_fitted_N, result.is_fitted_N)
    assert loaded.seed == result.seed


def test_the_same_seed_gives_the_same_map() -> None:
    vectors = np.random.default_rng(1).normal(size=(40, 6))
    one, again = map_of(vectors, 30, seed=5), map_of(vectors, 30, seed=5)
    np.testing.assert_array_equal(one.coordinates_N2, again.coordinates_N2)
    assert (map_of(vectors, 30, seed=6).is_fitted_N != one.is_fitted_N).any()


@pytest.mark.parametrize("vectors", [np.ones((12, 4)), np.eye(5)], ids=["identical", "fewest"])
def test_a_map_of_odd_documents_has_finite_coordinates(vectors: np.ndarray) -> None:
    assert np.isfinite(map_of(vectors, 100).coordinates_N2).all()


def test_too_few_documents_for_a_map_are_refused() -> None:
    with pytest.raises(EngineError, match="at least 5 documents, got 4"):
        list(project(np.eye(4)))


def test_a_machine_without_umap_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(EngineError, match="pip install umap-learn"):
        list(project(np.eye(10)))


def test_a_map_says_what_it_is_at_before_the_slow_import(monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[int] = []
    monkeypatch.setattr(umap_projection, "_umap", lambda *given: imported.append(given[0]))
    first = next(project(np.eye(10)))
    assert isinstance(first, Progress)
    assert first.note == "neighbours of 10 documents on the map (estimated from its size)"
    assert imported == []


def test_a_map_counts_the_epochs_of_its_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """UMAP's own bar writes into the file that it is given, and goes on once its epochs were seen of."""
    seen = Event()

    class Reducer:
        def __init__(self, options: dict[str, Any]) -> None:
            self.options = options

        def fit_transform(self, vectors: np.ndarray) -> np.ndarray:
            for epoch in tqdm(range(10), **self.options):
                if epoch == 3:
                    seen.wait()
            return vectors[:, :2]

    options = {**BAR_OPTIONS, "mininterval": 0, "miniters": 1}
    monkeypatch.setattr(umap_projection, "_umap", lambda *given: Reducer({**options, "file": given[2]}))
    phases = dict[str, Progress]()
    for one in project(np.eye(10)):
        if isinstance(one, Progress):
            phases[one.phase] = one
            if one.phase == "layout":
                seen.set()
    assert list(phases) == ["neighbours", "layout", "rest"]
    assert (phases["layout"].done, phases["layout"].total) == (3, 10)
