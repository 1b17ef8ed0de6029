"""One conformance test for every clusterer; law L11 and exactness for the balanced one."""

from __future__ import annotations

from itertools import pairwise
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from engine.clusters.centroids import Clusters
from engine.clusters.config import ClusterConfig, ClusterMethod
from engine.clusters.kmeans import (
    _find_prices,
    _Paths,
    _without_cycles,
    balanced_assignment,
    drawn_cluster,
    even_out,
    find_clusters,
    first_centres,
    kmeans,
    nearest_assignment,
)
from engine.errors import EngineError
from engine.events import Progress

one_move = _Paths.move
METHODS = get_args(ClusterMethod)
every_method = pytest.mark.parametrize("method", METHODS)


def points(num_documents: int, dimension: int = 8, groups: int = 5, seed: int = 0) -> NDArray[np.float32]:
    """Unit vectors around a few directions, of unequal numbers."""
    generator = np.random.default_rng(seed)
    shares = np.arange(1, groups + 1) / np.arange(1, groups + 1).sum()
    directions = generator.normal(size=(groups, dimension))
    vectors = directions[generator.choice(groups, num_documents, p=shares)]
    vectors = vectors + 0.5 * generator.normal(size=vectors.shape)
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def cluster(vectors: NDArray[np.float32], method: ClusterMethod, num_clusters: int, seed: int = 0) -> Clusters:
    *progress, result = find_clusters(vectors, ClusterConfig(method, num_clusters, seed=seed))
    assert all(isinstance(one, Progress) for one in progress)
    assert isinstance(result, Clusters)
    return result


def least_cost(costs_NK: NDArray[np.float64]) -> float:
    """The optimum by SciPy: each cluster has its share of places, and one more that may stay empty at no cost."""
    num_documents, num_clusters = costs_NK.shape
    share, rest = divmod(num_documents, num_clusters)
    certain, extra = np.tile(costs_NK, share), costs_NK if rest else costs_NK[:, :0]
    num_empty = certain.shape[1] + extra.shape[1] - num_documents
    nobody = np.hstack([np.full((num_empty, certain.shape[1]), 1e6), np.zeros((num_empty, extra.shape[1]))])
    matrix = np.vstack([np.hstack([certain, extra]), nobody])
    return float(matrix[linear_sum_assignment(matrix)].sum())


@every_method
def test_every_document_gets_a_cluster_and_every_centre_is_the_mean_of_its_own(method: ClusterMethod) -> None:
    vectors = points(103)
    result = cluster(vectors, method, 5)
    assert result.labels_N.shape == (103,)
    assert result.num_clusters == 5
    assert sum(result.sizes) == 103
    means = [vectors[result.labels_N == number].mean(0) for number in range(5)]
    np.testing.assert_allclose(result.centres_KD, means, atol=1e-5)
    own = np.square(vectors - result.centres_KD[result.labels_N]).sum(1).mean()
    assert result.costs[-1] == pytest.approx(own, rel=1e-4)


@every_method
def test_the_same_seed_gives_the_same_clusters_and_another_seed_others(method: ClusterMethod) -> None:  # L11
    vectors = points(200)
    one, again, other = (cluster(vectors, method, 7, seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one.labels_N, again.labels_N)
    np.testing.assert_array_equal(one.centres_KD, again.centres_KD)
    assert (one.labels_N != other.labels_N).any()


@every_method
def test_one_cluster_holds_everything(method: ClusterMethod) -> None:
    vectors = points(20)
    result = cluster(vectors, method, 1)
    assert result.sizes == [20]
    np.testing.assert_allclose(result.centres_KD[0], vectors.mean(0), atol=1e-6)


@every_method
def test_identical_documents_have_an_answer(method: ClusterMethod) -> None:
    result = cluster(np.ones((50, 4), dtype=np.float32), method, 4)
    assert sum(result.sizes) == 50
    assert max(result.sizes) == (50 if method == "unbalanced" else 13)
    np.testing.assert_allclose(result.centres_KD, 1)


@every_method
def test_fewer_documents_than_clusters_are_refused_with_both_numbers(method: ClusterMethod) -> None:
    with pytest.raises(EngineError, match=r"3 documents are too few for 4 clusters\. Choose fewer"):
        list(find_clusters(points(3), ClusterConfig(method, 4)))


@every_method
def test_a_vector_that_is_no_number_is_refused_and_named(method: ClusterMethod) -> None:
    vectors = points(10)
    vectors[7, 2] = np.nan
    with pytest.raises(EngineError, match=r"1 of 10 vectors are not finite .the first is document 7"):
        list(find_clusters(vectors, ClusterConfig(method, 2)))


@pytest.mark.parametrize("method", ["balanced", "unbalanced"])
def test_no_round_of_k_means_raises_the_cost(method: ClusterMethod) -> None:
    costs = cluster(points(400), method, 6).costs
    assert len(costs) > 2
    assert all(later <= earlier + 1e-7 for earlier, later in pairwise(costs))


def test_k_means_assigns_documents_as_its_caller_says_whatever_the_method_is_called() -> None:
    rounds: list[torch.Tensor | None] = []

    def assign(costs_NK: torch.Tensor, hint: torch.Tensor | None) -> tuple[NDArray[np.int32], torch.Tensor]:
        rounds.append(hint)
        return np.arange(len(costs_NK), dtype=np.int32) % costs_NK.shape[1], torch.tensor(len(rounds))

    *_, result = kmeans(points(30), ClusterConfig("balanced", 3), assign)
    assert isinstance(result, Clusters)
    assert result.labels_N.tolist() == [0, 1, 2] * 10
    assert rounds == [None, torch.tensor(1)]
    *_, nearest = kmeans(points(30), ClusterConfig("balanced", 3), nearest_assignment)
    assert isinstance(nearest, Clusters)
    assert nearest.sizes == cluster(points(30), "unbalanced", 3).sizes


@settings(max_examples=60)
@given(data=st.data(), seed=st.integers(0, 2**16), distinct=st.integers(1, 40))
def test_sizes_differ_by_at_most_one_for_any_numbers(data: st.DataObject, seed: int, distinct: int) -> None:  # L11
    num_documents = data.draw(st.integers(1, 120))
    num_clusters = data.draw(st.integers(1, num_documents))
    vectors = points(distinct, seed=seed)[np.random.default_rng(seed).integers(0, distinct, num_documents)]
    sizes = cluster(vectors, "balanced", num_clusters, seed).sizes
    assert len(sizes) == num_clusters
    assert max(sizes) - min(sizes) <= 1


@settings(max_examples=40)
@given(
    num_documents=st.integers(2, 60), num_clusters=st.integers(1, 12), seed=st.integers(0, 2**16), coarse=st.booleans()
)
def test_a_balanced_assignment_is_the_cheapest_there_is(
    num_documents: int, num_clusters: int, seed: int, coarse: bool
) -> None:
    num_clusters = min(num_clusters, num_documents)
    costs = np.random.default_rng(seed).exponential(size=(num_documents, num_clusters)).astype(np.float32)
    costs = np.round(costs * 3) if coarse else costs
    labels, _ = balanced_assignment(torch.from_numpy(costs))
    total = costs[np.arange(num_documents), labels].sum(dtype=np.float64)
    assert total == pytest.approx(least_cost(costs.astype(np.float64)), rel=1e-5, abs=1e-5)


def test_only_moves_reach_the_optimum_from_the_nearest_clusters() -> None:
    costs = np.random.default_rng(1).exponential(size=(90, 7)).astype(np.float32)
    labels = even_out(costs, costs.argmin(1).astype(np.int32))
    assert costs[np.arange(90), labels].sum() == pytest.approx(least_cost(costs.astype(np.float64)), rel=1e-6)


def test_identical_documents_move_together(monkeypatch: pytest.MonkeyPatch) -> None:
    moves = []
    monkeypatch.setattr(_Paths, "move", lambda self, *move: (moves.append(move), one_move(self, *move)))
    labels = even_out(np.ones((5000, 40), dtype=np.float32), np.zeros(5000, dtype=np.int32))
    assert set(np.bincount(labels)) == {125}
    assert len(moves) == 39


def test_an_outlier_disturbs_neither_balance_nor_end() -> None:
    vectors = np.vstack([points(400), np.full((1, 8), 1e5, dtype=np.float32)])
    assert sorted(cluster(vectors, "balanced", 16).sizes) == [25] * 15 + [26]


def test_a_path_goes_in_no_circle() -> None:
    assert _without_cycles([4, 1, 2, 1, 3, 5, 3]) == [4, 1, 3]


def test_prices_leave_little_to_move() -> None:
    """Without good prices the exact part would move thousands of documents one by one."""
    costs = torch.cdist(torch.from_numpy(points(4000)), torch.from_numpy(points(20, seed=1))).square()
    by_itself = costs.argmin(1).bincount(minlength=20)
    priced = (costs + _find_prices(costs, None)).argmin(1).bincount(minlength=20)
    assert (by_itself - 200).abs().sum() > 1000
    assert (priced - 200).abs().sum() < 100


def test_balanced_clusters_cost_no_more_than_those_of_k_means_constrained() -> None:
    peer = pytest.importorskip("k_means_constrained", reason="the oracle is installed by: make install-test")
    vectors = points(601, groups=9)
    result = cluster(vectors, "balanced", 6, seed=2)
    other = peer.KMeansConstrained(
        6, size_min=100, size_max=101, init=first_centres(vectors, 6, 2), n_init=1, max_iter=19, tol=0
    ).fit(vectors)
    means = np.array([vectors[other.labels_ == number].mean(0) for number in range(6)])
    assert result.costs[-1] <= 1.005 * np.square(vectors - means[other.labels_]).sum(1).mean()


def test_a_later_document_of_random_clusters_has_a_lot_of_its_own() -> None:
    lots = [drawn_cluster(f"document {number}", 4, seed=0) for number in range(400)]
    assert lots == [drawn_cluster(f"document {number}", 4, seed=0) for number in range(400)]
    assert min(np.bincount(lots)) > 60
    assert lots != [drawn_cluster(f"document {number}", 4, seed=1) for number in range(400)]
