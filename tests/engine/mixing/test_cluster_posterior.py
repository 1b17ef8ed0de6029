"""Nearness as the prior of a posterior: what it is written out, and what it is at its ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from engine.config import Evidence
from engine.errors import MixtureError, ScoresError
from engine.inference.scores import as_blocks, mixed_perplexity
from engine.mixing.cluster import ClusterGate, ClusterPosteriorGate, Routing
from engine.mixing.cluster_gate_grid import any_gate_grid
from engine.mixing.posterior import PosteriorGate
from tests.engine.clustered import NUM_CLUSTERS, tiny_distances, tiny_routing

DISTANCES = tiny_distances(60, 20)
PRIOR = [1.0, 2.0, 3.0, 4.0]


def logprobs(num_experts: int = NUM_CLUSTERS) -> Tensor:
    return -torch.rand(num_experts, 3, 20, generator=torch.Generator().manual_seed(0)) * 8


def routing(*clusters: int | None) -> Routing:
    return replace(tiny_routing(), clusters=clusters)


def test_it_is_nearness_times_likelihood_written_out() -> None:
    scores_ENT = logprobs().double()
    result_ENT = ClusterPosteriorGate(PRIOR, routing(0, None, 2, None), temperature=0.5).block(scores_ENT, DISTANCES)
    squared_2NT = DISTANCES.of(torch.tensor([0, 2]), range(3), 20)
    near_2NT = torch.tensor([1.0, 3.0], dtype=torch.float64)[:, None, None] * (-squared_2NT / 0.5).exp()
    shares_2NT = 0.4 * near_2NT / near_2NT.sum(0)  # what 1 and 3 of 10 are together
    prior_ENT = torch.stack([shares_2NT[0], torch.full((3, 20), 0.2), shares_2NT[1], torch.full((3, 20), 0.4)])
    likelihood_ENT = torch.cat([torch.zeros(4, 3, 1), scores_ENT.cumsum(-1)[..., :-1]], -1).exp()
    expected_ENT = prior_ENT * likelihood_ENT
    torch.testing.assert_close(result_ENT.exp(), expected_ENT / expected_ENT.sum(0))


def test_without_a_cluster_it_is_the_posterior_to_the_bit() -> None:
    gate = ClusterPosteriorGate(PRIOR, Routing([None] * NUM_CLUSTERS))
    plain, scores_ENT = PosteriorGate(PRIOR), logprobs()
    assert torch.equal(gate.block(scores_ENT), plain.block(scores_ENT))
    assert torch.equal(gate.mixed(scores_ENT), plain.mixed(scores_ENT))
    assert torch.equal(gate.start().log_weights(), plain.start().log_weights())


def test_where_experts_agree_it_is_the_cluster_gate() -> None:
    agreed_ENT = logprobs()[:1].expand(NUM_CLUSTERS, -1, -1)
    result = ClusterPosteriorGate(PRIOR, tiny_routing(), temperature=0.5).block(agreed_ENT, DISTANCES)
    expected = ClusterGate(PRIOR, tiny_routing(), temperature=0.5).block(agreed_ENT, DISTANCES)
    torch.testing.assert_close(result.exp(), expected.exp())


def test_nearness_moves_nothing_to_or_from_experts_without_a_cluster() -> None:
    first_EN = ClusterPosteriorGate([1.0] * 4, routing(0, 1, 2, None)).block(logprobs(), DISTANCES)[..., 0].exp()
    torch.testing.assert_close(first_EN[3], torch.full((3,), 0.25, dtype=torch.float64))
    assert float(first_EN[:3].std()) > 0.1


def test_the_best_of_the_posterior_are_kept_and_not_of_the_prior() -> None:
    scores_ENT = torch.zeros(4, 3, 20)
    last_E = DISTANCES.of(torch.arange(4), range(3), 20)[:, 0, 1]
    far = int(last_E.argmax())
    scores_ENT[:, :, 0] = -40.0
    scores_ENT[far, :, 0] = 0.0
    weights_ENT = ClusterPosteriorGate([1.0] * 4, tiny_routing(), top_k=1).block(scores_ENT, DISTANCES).exp()
    assert float(weights_ENT[far, 0, 1]) == 1


@pytest.mark.parametrize("evidence", ["prefix", "last_token"])
def test_a_grid_holds_the_result_of_each_single_gate(evidence: Evidence) -> None:
    scores_EX, temperatures, top_ks = logprobs().flatten(1)[:, :53] / 8, [0.05, 0.5, 5.0], [1, 2, 3, 99]

    def gate_at(temperature: float, top_k: int | None = None) -> ClusterPosteriorGate:
        return ClusterPosteriorGate(PRIOR, routing(3, None, 1, 0), evidence, top_k, temperature=temperature)

    result = any_gate_grid(gate_at, as_blocks(scores_EX, 20), DISTANCES, 53, temperatures, top_ks)
    for row, temperature in enumerate(temperatures):
        for column, top_k in enumerate(top_ks):
            by_itself = mixed_perplexity(gate_at(temperature, top_k), scores_EX, 20, DISTANCES)
            assert float(result[row, column]) == pytest.approx(by_itself, rel=1e-9)
    assert float(result.std(0).min()) > 1e-4  # temperatures differ


@pytest.mark.parametrize("clusters", [(0, 1, 2, 3), (0, None, 2, None)])
def test_what_it_lacks_is_reported(clusters: Sequence[int | None]) -> None:
    gate = ClusterPosteriorGate(PRIOR, Routing(clusters))
    with pytest.raises(ScoresError, match="distances of the scored text"):
        gate.block(logprobs())
    with pytest.raises(MixtureError, match="needs its clustering"):
        gate.start()


def test_a_cluster_gate_by_itself_weighs_nobody_without_a_cluster() -> None:
    with pytest.raises(MixtureError, match="3 of 4 have one"):
        ClusterGate(PRIOR, Routing([0, None, 1, 2]))
