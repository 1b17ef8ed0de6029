"""The cluster gate is Eq. 3 of C-BTM, token by token and from stored distances."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.clusters.centroids import Clusters, squared_distances
from engine.clusters.config import ClusterConfig, Scaling, TfidfConfig
from engine.clusters.distances import Distances, measure_distances, open_distances, require_same_text
from engine.clusters.embedders.tfidf_svd import TfidfEmbedder, fit_tfidf
from engine.clusters.kmeans import find_clusters
from engine.errors import MixtureError, ScoresError
from engine.inference.scores import as_blocks, mixed_perplexity
from engine.mixing.base import FLOOR
from engine.mixing.cluster import ClusterGate, Routing
from engine.mixing.cluster_gate_grid import any_gate_grid, cluster_gate_grid
from engine.mixing.gate_type import build_gate
from engine.mixing.gates.cluster import ClusterGateConfig
from engine.text.blocks import EvalSample, Tokens, eval_sample
from tests.engine.clustered import (
    NUM_CLUSTERS,
    WORDS,
    distances_of,
    separate_blocks,
    tiny_clustering,
    tiny_distances,
    tiny_routing,
    tiny_tokenizer,
    tiny_tokens,
)

EVEN = [1.0] * NUM_CLUSTERS


def weights_of(gate: ClusterGate, tokens: Sequence[int]) -> Tensor:
    """The weights [E, T] after each token of a text."""
    stream, result = gate.start(), []
    for position, token in enumerate(tokens):
        if position:
            stream.observe(torch.full((NUM_CLUSTERS,), torch.nan), token)
        else:
            stream.begin(token)
        result.append(stream.log_weights().exp())
    return torch.stack(result, 1)


def from_scratch(text: str, temperature: float, distance_power: float = 2) -> Tensor:
    """Eq. 3 written out for a text that is embedded whole."""
    clustering = tiny_clustering()
    vectors = clustering.embedder.embed([text]).vectors_ND
    squared = torch.from_numpy(squared_distances(vectors, clustering.clusters.centres_KD)[0])
    closeness = (-(squared.sqrt() ** distance_power) / temperature).exp()
    return closeness / closeness.sum()


def documents(num_each: int) -> list[str]:
    """Documents that share most of their words, frequent and rare as in a language, and have some of their subject."""
    draw, shares = np.random.default_rng(0), 1 / np.arange(1, 301)
    return [
        " ".join(
            [
                *(f"common{number}" for number in draw.choice(300, 60, p=shares / shares.sum())),
                *draw.choice(words.split(), 6),
            ]
        )
        for words in WORDS
        for _ in range(num_each)
    ]


def soft(scaling: Scaling, temperature: float) -> tuple[float, float]:
    """The mean number of experts that weigh in (exponential of the weights' entropy), and the mean largest weight."""
    *_, embedder = fit_tfidf(documents(30), TfidfConfig(scaling=scaling))
    assert isinstance(embedder, TfidfEmbedder)
    vectors_ND = embedder.embed(documents(30)).vectors_ND
    *_, clusters = find_clusters(vectors_ND, ClusterConfig(num_clusters=NUM_CLUSTERS))
    assert isinstance(clusters, Clusters)
    gate = ClusterGate(EVEN, Routing(range(NUM_CLUSTERS)), temperature=temperature)
    weights_EN = gate.log_weights_of(torch.from_numpy(squared_distances(vectors_ND, clusters.centres_KD).T)).exp()
    return float(torch.special.entr(weights_EN).sum(0).exp().mean()), float(weights_EN.amax(0).mean())


def test_with_the_defaults_several_experts_weigh_in() -> None:
    num_experts, largest = soft(TfidfConfig().scaling, ClusterGateConfig().temperature)
    assert num_experts > 1.5
    assert largest < 0.8


def test_the_papers_pair_takes_a_single_expert_and_another_temperature_does_not() -> None:
    assert soft("standardise", 0.1)[1] > 0.98
    assert soft("standardise", 3.0)[1] < 0.8


@pytest.mark.parametrize("power", [2, 4])
def test_weights_of_a_growing_text_are_those_of_the_text_embedded_from_scratch(power: float) -> None:  # L10
    tokenizer, gate = tiny_tokenizer(), ClusterGate(EVEN, tiny_routing(), temperature=0.5, distance_power=power)
    ids = [
        tokenizer.bos_id,
        *tokenizer.encode("The court bakes a cake über the harbour – 12 waves, 3 judges and flour"),
    ]
    result_ET, spoken, text = weights_of(gate, ids), tokenizer.stream(), ""
    for position, token in enumerate(ids):
        text += spoken.push(token)
        torch.testing.assert_close(result_ET[:, position], from_scratch(text, 0.5, power), atol=1e-6, rtol=0)
    assert float(result_ET.std(1).max()) > 0.05  # they do change


def test_each_sort_of_text_wakes_its_own_cluster() -> None:
    gate = ClusterGate(EVEN, tiny_routing(), temperature=0.1)
    leaders = [
        int(weights_of(gate, [tiny_tokenizer().bos_id, *tiny_tokenizer().encode(words)])[:, -1].argmax())
        for words in WORDS
    ]
    assert sorted(leaders) == list(range(NUM_CLUSTERS))


def test_before_any_text_weights_are_those_of_an_empty_text() -> None:
    stream = ClusterGate([1, 2, 3, 4], tiny_routing(), temperature=0.5).start()
    expected = from_scratch("", 0.5) * torch.tensor([1, 2, 3, 4])
    torch.testing.assert_close(stream.log_weights().exp(), expected / expected.sum(), atol=1e-6, rtol=0)
    unknown = tiny_tokenizer().encode("zq")
    for token in unknown:
        stream.observe(torch.zeros(4), token)  # a text without a known word is no other
    torch.testing.assert_close(stream.log_weights().exp(), expected / expected.sum(), atol=1e-6, rtol=0)


def test_a_bos_token_starts_another_text() -> None:
    ids = tiny_tokenizer().encode(WORDS[1])
    gate, bos = ClusterGate(EVEN, tiny_routing()), tiny_tokenizer().bos_id
    one = weights_of(gate, [bos, *ids])
    two = weights_of(gate, [bos, *tiny_tokenizer().encode(WORDS[0]), bos, *ids])
    assert torch.equal(two[:, -len(ids) - 1 :], one)


def test_a_frozen_gate_stays_as_it_was_until_another_text_begins() -> None:
    bos, first, second = tiny_tokenizer().bos_id, *(tiny_tokenizer().encode(words) for words in WORDS[:2])
    ids = [bos, *first, bos, *second]
    free, frozen = (
        weights_of(ClusterGate(EVEN, tiny_routing(), temperature=1, freeze_after=after), ids) for after in (None, 3)
    )
    for start, length in ((0, len(first)), (1 + len(first), len(second))):
        assert torch.equal(frozen[:, start : start + 4], free[:, start : start + 4])
        rest = frozen[:, start + 4 : start + 1 + length]
        assert torch.equal(rest, free[:, start + 3, None].expand_as(rest))
    assert not torch.equal(frozen, free)


def test_the_released_code_squares_the_distance_twice() -> None:
    squared = torch.tensor([1.0, 4.0, 9.0, 16.0])
    gate = ClusterGate(EVEN, tiny_routing(), temperature=10, distance_power=4)
    expected = torch.tensor([1.0, 16.0, 81.0, 256.0], dtype=torch.float64) / -10
    torch.testing.assert_close(gate.log_weights_of(squared), expected.log_softmax(0))


def test_only_the_nearest_are_kept_and_their_shares_are_rescaled_to_one() -> None:
    gate = ClusterGate(EVEN, tiny_routing(), temperature=2, top_k=2)
    far, near = torch.tensor([4.0, 1.0], dtype=torch.float64).div(-2).softmax(0)
    result = gate.log_weights_of(torch.tensor([9.0, 4.0, 1.0, 16.0])).exp()
    torch.testing.assert_close(result, torch.stack([far * 0, far, near, far * 0]))


def test_experts_of_one_cluster_share_it() -> None:
    gate = ClusterGate([1, 1, 2], Routing([0, 1, 1]), temperature=1)
    result = gate.log_weights_of(torch.tensor([3.0, 3.0, 3.0])).exp()
    torch.testing.assert_close(result, torch.tensor([0.25, 0.25, 0.5], dtype=torch.float64))


def test_what_the_gate_lacks_is_reported() -> None:
    with pytest.raises(MixtureError, match="needs the cluster of each expert"):
        build_gate(ClusterGateConfig(), EVEN)
    with pytest.raises(MixtureError, match="2 of 4 have one"):
        ClusterGate(EVEN, Routing([0, 1]))
    gate = ClusterGate(EVEN, Routing([0, 1, 2, 3]))
    with pytest.raises(MixtureError, match="needs its clustering"):
        gate.start()
    with pytest.raises(ScoresError, match="distances of the scored text"):
        gate.block(torch.zeros(4, 3, 20))
    with pytest.raises(
        ScoresError, match="60 tokens in blocks of 20, and the scores at least 46 tokens in blocks of 15"
    ):
        gate.block(torch.zeros(4, 4, 15), tiny_distances(60, 20))
    with pytest.raises(ScoresError, match="cover 60 tokens in blocks of 20, and the scores at least 61 tokens"):
        gate.block(torch.zeros(4, 4, 20), tiny_distances(60, 20))


def test_stored_distances_do_not_depend_on_where_a_set_ends(tmp_path: Path) -> None:
    text = separate_blocks(tiny_tokens(61)[:48], 20)
    for _ in measure_distances(tiny_clustering(), tiny_tokenizer(), text, tmp_path):
        pass
    short, complete = open_distances(tmp_path), tiny_distances(60, 20)
    assert torch.equal(short.further_KX, complete.further_KX[:, :47])
    assert torch.equal(short.nearest_X, complete.nearest_X[:47])
    assert torch.equal(short.known_X, complete.known_X[:47])
    assert (short.further_KX.dtype, short.block_size) == (torch.float32, 20)
    with pytest.raises(ScoresError, match="fewer than 2 tokens"):
        next(measure_distances(tiny_clustering(), tiny_tokenizer(), eval_sample(tiny_tokens(61)[:1], 20), tmp_path))


def document(*words: str) -> list[int]:
    """The tokens of a document, after a beginning token."""
    return [tiny_tokenizer().bos_id, *tiny_tokenizer().encode(" ".join(words))]


def split_of(*documents: list[int]) -> Tokens:
    starts = np.cumsum([0, *map(len, documents)])[:-1]
    return Tokens(np.concatenate(documents).astype(np.uint16), starts)


def test_a_block_in_the_middle_of_a_document_knows_what_stands_before_it() -> None:
    gate, tokens = ClusterGate(EVEN, tiny_routing(), temperature=0.5), document(*WORDS, *WORDS)
    distances = distances_of(EvalSample.of(split_of(tokens), 10))
    blocks_ENT = gate.block(torch.zeros(4, len(distances.known_X) // 10 + 1, 10), distances).exp()
    streamed_ET = weights_of(gate, tokens[:-1])  # one stream from the first token to the last
    stored_ET = blocks_ENT.flatten(1)[:, : streamed_ET.shape[1]]
    torch.testing.assert_close(stored_ET, streamed_ET, atol=1e-6, rtol=0)
    assert distances.known_X.tolist() == list(range(len(tokens) - 1))


def test_text_between_the_scored_blocks_and_of_other_documents_counts_as_it_stands() -> None:
    first, second = document(*WORDS, *WORDS), document(WORDS[1], WORDS[0], WORDS[3])
    tokens = split_of(first, second)
    starts = np.array([30, len(first) + 10, len(first) + 20])  # a gap before the first and the second
    sparse = distances_of(EvalSample(tokens, 10, starts))
    full = distances_of(EvalSample.of(tokens, 1))
    kept_X = np.concatenate([np.arange(start, start + 10) for start in starts])
    assert torch.equal(sparse.known_X, full.known_X[kept_X])
    torch.testing.assert_close(sparse.further_KX, full.further_KX[:, kept_X], atol=1e-6, rtol=0)
    assert int(sparse.known_X[10]) == 10  # of the second document, not of both


def test_a_frozen_gate_has_the_weights_of_a_block_that_begins_later_from_its_first_token_on() -> None:
    tokens = split_of(document(*WORDS, *WORDS))
    distances = distances_of(EvalSample.of(tokens, 10))
    frozen = distances.frozen(5)
    assert torch.equal(frozen.further_KX[:, 6:10], distances.further_KX[:, 5:6].expand(-1, 4))
    assert torch.equal(frozen.further_KX[:, 10:20], distances.further_KX[:, 10:11].expand(-1, 10))
    assert not torch.equal(distances.further_KX[:, 10:20], distances.further_KX[:, 10:11].expand(-1, 10))


def test_distances_of_another_text_are_not_those_of_the_scores(tmp_path: Path) -> None:
    text, other = (eval_sample(tiny_tokens(length), 20) for length in (41, 42))
    for _ in measure_distances(tiny_clustering(), tiny_tokenizer(), text, tmp_path):
        pass
    (tmp_path / "scores.json").write_text(json.dumps({"text_sha256": text.sha256}))
    require_same_text(tmp_path, tmp_path)
    (tmp_path / "scores.json").write_text(json.dumps({"text_sha256": other.sha256}))
    with pytest.raises(ScoresError, match="are of different texts"):
        require_same_text(tmp_path, tmp_path)


def scored(num_experts: int, num_tokens: int) -> tuple[Tensor, Distances]:
    """Random scores, one expert the better the nearer it is."""
    draw = np.random.default_rng(3)
    squared = torch.from_numpy(draw.gamma(2, 0.3, (num_experts, num_tokens)).astype(np.float32))
    noise = torch.from_numpy(draw.normal(0, 1, squared.shape).astype(np.float32))
    return -3 - squared + noise, Distances(
        squared, torch.zeros(num_tokens), torch.zeros(num_tokens, dtype=torch.int32), 20
    )


@pytest.mark.parametrize("power", [2, 4])
def test_a_grid_holds_the_result_of_each_single_gate(power: float) -> None:
    scores_EX, distances = scored(6, 20_011)
    temperatures, top_ks = [0.01, 0.1, 1.0], [1, 2, 4, 6, 99]
    result = cluster_gate_grid(scores_EX, distances.further_KX, temperatures, top_ks, distance_power=power)
    for row, temperature in enumerate(temperatures):
        for column, top_k in enumerate(top_ks):
            gate = ClusterGate([1.0] * 6, Routing(range(6)), temperature=temperature, top_k=top_k, distance_power=power)
            by_itself = mixed_perplexity(gate, scores_EX, 20, distances)
            assert float(result[row, column]) == pytest.approx(by_itself, rel=1e-9)
    assert torch.equal(result[0, 3], result[0, 4])
    assert float(result[0, 0]) == pytest.approx(
        float(result[2, 0]), rel=1e-12
    )  # with one expert the temperature is nothing


def test_a_grid_stays_finite_where_the_nearest_finds_a_token_impossible() -> None:
    scores_EX = torch.tensor([[-1e4, -1.0], [-2.0, -2.0]])
    result = cluster_gate_grid(scores_EX, torch.tensor([[0.0, 0.0], [1.0, 1.0]]), [0.1, 1.0], [1, 2])
    assert torch.isfinite(result).all()
    assert float(result[1, 1]) < float(result[1, 0])


def test_of_experts_as_near_as_each_other_a_grid_keeps_the_first_as_the_gate_does() -> None:
    scores_EX, distances = scored(40, 300)
    clusters = [expert % 3 for expert in range(40)]  # experts of one cluster are equally far
    top_ks = [1, 2, 16, 30]
    result = cluster_gate_grid(scores_EX, distances.further_KX[clusters], [0.1, 1.0], top_ks)
    for row, temperature in enumerate([0.1, 1.0]):
        for column, top_k in enumerate(top_ks):
            gate = ClusterGate([1.0] * 40, Routing(clusters), temperature=temperature, top_k=top_k)
            by_itself = mixed_perplexity(gate, scores_EX, 20, distances)
            assert float(result[row, column]) == pytest.approx(by_itself, rel=1e-9)


def test_a_token_that_all_experts_find_impossible_costs_a_grid_the_floor() -> None:
    scores_EX, distances = scored(2, 100)
    floored_EX = scores_EX.clone()
    scores_EX[:, 7], floored_EX[:, 7] = -torch.inf, FLOOR
    temperatures, top_ks = [0.1, 1.0], [1, 2]
    result = cluster_gate_grid(scores_EX, distances.further_KX, temperatures, top_ks)
    assert torch.isfinite(result).all()
    assert torch.equal(result, cluster_gate_grid(floored_EX, distances.further_KX, temperatures, top_ks))

    def gate_at(temperature: float) -> ClusterGate:
        return ClusterGate([1.0, 1.0], Routing([0, 1]), temperature=temperature)

    of_gates = any_gate_grid(gate_at, as_blocks(scores_EX, 20), distances, 100, temperatures, top_ks)
    torch.testing.assert_close(of_gates, result, rtol=1e-9, atol=0)
