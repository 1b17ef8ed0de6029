"""Whether the documents of a sample differ, and whether their words say anything."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.clusters.centroids import is_divided, positions
from engine.clusters.clusterer_type import clusterer_types
from engine.clusters.config import ClusterConfig
from engine.clusters.embedders.tfidf_svd import UnspacedText
from engine.clusters.fitting import SampleFacts, find_apart
from engine.errors import EngineError
from tests.engine.clustered import tiny_clustering

BY_MEANING = [name for name, type_ in clusterer_types().items() if not type_.is_random]


def num_positions(vectors: Any) -> int:
    return len(np.unique(positions(vectors.astype(np.float32), 1e-5)))


@pytest.mark.parametrize("dimension", [1, 3, 100])
@pytest.mark.parametrize("length", [1e-4, 1.0, 50.0])
def test_vectors_that_differ_by_rounding_share_a_position(dimension: int, length: float) -> None:
    chance = np.random.default_rng(0)
    places = length * chance.normal(size=(3, dimension)) + 10 * np.arange(3)[:, None]
    vectors = places[chance.integers(3, size=500)]
    assert num_positions(vectors * (1 + 1e-7 * chance.normal(size=vectors.shape))) == 3


def test_vectors_that_differ_by_more_have_positions_of_their_own() -> None:
    vectors = np.random.default_rng(0).normal(size=(20_000, 8))
    assert num_positions(vectors / np.linalg.norm(vectors, axis=1, keepdims=True)) == 20_000
    assert num_positions(np.zeros((50, 4))) == 1


def test_documents_at_a_position_of_two_clusters_are_divided() -> None:
    divided = is_divided(np.array([0, 0, 1, 1, 2]), np.array([0, 1, 1, 1, 0], dtype=np.int32))
    assert divided.tolist() == [True, True, False, False, False]


def apart(vectors: Any, method: str, num_clusters: int) -> SampleFacts:
    steps = find_apart(vectors.astype(np.float32), ClusterConfig(method, num_clusters), tiny_clustering().embedder)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value[1]


@pytest.mark.parametrize("method", BY_MEANING)
def test_no_clusterer_finds_more_clusters_than_there_are_vectors(method: str) -> None:
    vectors = np.eye(4)[np.arange(40) % 3] + 1e-8 * np.random.default_rng(0).normal(size=(40, 4))
    with pytest.raises(EngineError, match=r"The 40 documents .* 3 different vectors, too few for 4 clusters"):
        apart(vectors, method, 4)
    assert apart(vectors, method, 3).arbitrary == ()


def test_clusters_by_lot_need_no_vectors_that_differ() -> None:
    assert apart(np.ones((40, 4)), "random", 4) == SampleFacts()


def test_clusters_that_consist_of_divided_documents_are_arbitrary() -> None:
    vectors = np.eye(4)[[0] * 30 + [1] * 10 + [2] * 20]
    facts = apart(vectors, "balanced", 3)
    assert facts.num_divided == 30
    assert len(facts.arbitrary) == 1


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("Bees build combs of wax.", 0),
        ("今天天气很好，我们去公园散步。", 1),
        ("วันนี้อากาศดีมาก", 1),
        ("thequickbrownfox" * 9, 1),
        ("한국어는 낱말 사이를 띄어 쓴다", 0),
        ("これは日本語です", 1),
        ("bees 法院驳", 3 / 7),
        ("", 0),
    ],
)
def test_letters_in_text_without_blanks_between_words_are_counted(text: str, share: float) -> None:
    counter = UnspacedText()
    assert list(counter.count([text])) == [text]
    assert counter.share == pytest.approx(share)
