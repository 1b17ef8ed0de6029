"""The gates that come with the workbench, written out. E experts, N blocks, T positions."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from engine.config import Evidence
from engine.errors import MixtureError
from engine.inference.scores import as_blocks, mix_scores
from engine.mixing.base import keep_top, mix
from engine.mixing.gate_type import build_gate, gate_type
from engine.mixing.gates.posterior import PosteriorGateConfig
from engine.mixing.gates.updating import UpdatingGateConfig
from engine.mixing.posterior import PosteriorGate, UpdatingGate, estimate_prior


def logprobs(num_experts: int = 4, blocks: int = 3, positions: int = 20, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return -torch.rand(num_experts, blocks, positions, generator=generator) * 8


@pytest.mark.parametrize("lambda_", [0.1, 0.3, 0.5, 1.0])  # the grid of §5.1
def test_the_updating_prior_is_the_weighted_mean_of_equation_nine(lambda_: float) -> None:
    scores_ENT = logprobs(blocks=4) / 10
    gate = build_gate(UpdatingGateConfig(newest_weight=1 - lambda_, update_every=20), [1.0] * 4)
    prior = torch.full((4,), 0.25, dtype=torch.float64)
    posteriors: list[Tensor] = []
    for n in range(4):
        torch.testing.assert_close(gate.block(scores_ENT)[:, n, 0].exp(), prior)
        posteriors.append((scores_ENT[:, n].double().sum(-1) + prior.log()).softmax(0))
        decayed = torch.tensor([lambda_ ** (n + 1 - t) for t in range(n + 1)], dtype=torch.float64)  # Eq. 9
        prior = (decayed[:, None] * torch.stack(posteriors)).sum(0) / decayed.sum()


@pytest.mark.parametrize("evidence", ["prefix", "last_token"])
def test_blocks_of_as_many_tokens_as_the_prior_learns_after_are_weighed_as_they_stand(evidence: Evidence) -> None:
    gate, scores_ENT = UpdatingGate([1, 2, 3, 4], evidence, update_every=20), logprobs()
    weights_ENT = gate.weigh(gate.evidence_before(scores_ENT), gate.priors(scores_ENT)[:, :-1, None])
    assert torch.equal(gate.block(scores_ENT), weights_ENT)
    assert torch.equal(gate.mixed(scores_ENT), mix(weights_ENT, scores_ENT.double()))


@pytest.mark.parametrize("update_every", [1, 7, 20, 33, 60, 10**12])
def test_an_updating_prior_does_not_depend_on_how_the_text_is_cut_for_scoring(update_every: int) -> None:
    gate, scores_EX = UpdatingGate([1.0, 2.0, 3.0, 4.0], update_every=update_every), logprobs().flatten(1).double()
    full_X, *others = (mix_scores(gate, scores_EX, size) for size in (60, 20, 13, 1))
    for other_X in others:
        torch.testing.assert_close(other_X, full_X, atol=1e-9, rtol=0)
    for size in (60, 20, 13, 1):
        total = gate.total(as_blocks(scores_EX, size))
        assert total == pytest.approx(float(full_X.sum()), rel=1e-9)


def test_an_expert_that_one_block_ruled_out_can_come_back() -> None:
    scores_ENT = torch.zeros(2, 8, 20)
    scores_ENT[0, :3], scores_ENT[1, 3:] = -60.0, -60.0  # 1200 nats a block, beyond any float's exponent
    gate = build_gate(UpdatingGateConfig(newest_weight=0.7, update_every=20), [1.0, 1.0])
    assert gate.block(scores_ENT)[0, 7, 10].exp() > 0.99


def test_a_cached_prior_is_the_mean_posterior_of_exactly_the_requested_blocks() -> None:
    scores_ENT = logprobs(blocks=12) / 10
    gate = PosteriorGate([1.0] * 4)
    expected = scores_ENT[:, :10].double().sum(-1).softmax(0).mean(1)
    torch.testing.assert_close(estimate_prior(gate, scores_ENT, 10), expected)
    with pytest.raises(MixtureError, match="needs 13 blocks; there are 12"):
        estimate_prior(gate, scores_ENT, 13)


def test_the_posterior_is_bayes_rule_written_out() -> None:
    prior = torch.tensor([0.2, 0.8], dtype=torch.float64)
    scores_ENT = torch.tensor([[[-1.0, -2.0, -3.0]], [[-2.0, -0.5, -1.0]]], dtype=torch.float64)
    prefix = build_gate(PosteriorGateConfig(evidence="prefix"), prior.tolist()).block(scores_ENT)[:, 0, 2].exp()
    last = build_gate(PosteriorGateConfig(evidence="last_token"), prior.tolist()).block(scores_ENT)[:, 0, 2].exp()
    by_prefix = prior * torch.tensor([-3.0, -2.5], dtype=torch.float64).exp()
    by_last = prior * torch.tensor([-2.0, -0.5], dtype=torch.float64).exp()
    torch.testing.assert_close(prefix, by_prefix / by_prefix.sum())
    torch.testing.assert_close(last, by_last / by_last.sum())


@pytest.mark.parametrize("kind", ["posterior", "updating", "fixed"])
def test_of_equal_weights_the_first_are_kept_in_a_stream_as_in_a_block(kind: str) -> None:
    gate = build_gate(gate_type(kind).config(kind, top_k=3), [1.0, 2.0, 1.0, 1.0, 1.0])
    expected_E = torch.tensor([0.25, 0.5, 0.25, 0, 0], dtype=torch.float64)
    torch.testing.assert_close(gate.start().log_weights().exp(), expected_E)
    torch.testing.assert_close(gate.block(torch.zeros(5, 2, 3)).exp(), expected_E[:, None, None].expand(5, 2, 3))


@pytest.mark.parametrize("top_k", [1, 2, 4, 6])
@pytest.mark.parametrize("num_experts", [7, 300])
def test_top_k_keeps_what_sorting_would(top_k: int, num_experts: int) -> None:
    draw = torch.Generator().manual_seed(0)
    log_weights = -torch.randint(1, 5, (num_experts, 3, 40), generator=draw).double()  # many ties
    log_weights[2] = -torch.inf
    best = log_weights.sort(dim=0, descending=True, stable=True).indices[:top_k]
    expected = torch.full_like(log_weights, -torch.inf).scatter(0, best, log_weights.gather(0, best)).log_softmax(0)
    assert torch.equal(keep_top(log_weights, top_k), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_too_small_to_count_does_not_change_the_sum(dtype: torch.dtype) -> None:
    far_E = torch.tensor([-3.0, -3.5, -60.0, -90.0, -720.0, -1e4, -torch.inf], dtype=dtype)
    assert mix(torch.zeros(7, dtype=dtype), far_E) == far_E.logsumexp(0)
    assert mix(torch.zeros(3, dtype=dtype), torch.full((3, 2), -torch.inf, dtype=dtype)).tolist() == [-math.inf] * 2


def test_an_expert_of_weight_zero_may_say_what_is_no_number_and_no_other_may() -> None:
    logprobs_E = torch.tensor([-1.0, math.nan, -2.0])
    assert mix(torch.tensor([0.0, -torch.inf, -torch.inf]), logprobs_E) == -1.0
    assert mix(torch.tensor([0.5, 0.5, 0.0]).log(), logprobs_E).isnan()


def test_mixing_is_over_probabilities() -> None:
    logprobs_EV = torch.tensor([[0.7, 0.3], [0.1, 0.9]]).log()
    mixed_V = mix(torch.tensor([0.25, 0.75]).log(), logprobs_EV).exp()
    torch.testing.assert_close(mixed_V, torch.tensor([0.25, 0.75]))


@pytest.mark.parametrize("weights", [[], [0.0, 0.0], [-1.0, 2.0], [float("nan"), 1.0], [float("inf"), 1.0]])
def test_weights_that_are_none_are_refused(weights: list[float]) -> None:
    with pytest.raises(MixtureError, match="Weights must be"):
        build_gate(PosteriorGateConfig(), weights)
