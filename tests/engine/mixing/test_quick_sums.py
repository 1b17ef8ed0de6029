"""Quick sums of kept likelihoods and weights are those of the gates' weights, up to the rounding of float32."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.mixing.base import FixedGate, mix
from engine.mixing.evidence import AnyEvidence, EvidenceRule
from engine.mixing.posterior import PosteriorGate, UpdatingGate
from engine.mixing.quick_sums import fixed_total, likelihoods_of, weighted_total, weights_of

EVIDENCE: list[AnyEvidence] = ["prefix", "last_token", EvidenceRule(0.5, 0.6, 0.98, 0.08)]
PRIOR = [1.0, 2.0, 0.5, 3.0, 1.5]
every_top_k = pytest.mark.parametrize("top_k", [None, 1, 2, 4, 5])


def scores(num_blocks: int = 37, block_size: int = 19) -> Tensor:
    return -torch.empty(5, num_blocks, block_size).exponential_(1 / 3, generator=torch.Generator().manual_seed(0))


def quick(gate: PosteriorGate, scores_ENT: Tensor) -> float:
    priors_EN = gate.priors(scores_ENT)[:, :-1].numpy()
    weights = [weights_of(seen_NT) for seen_NT in gate.evidence_before(scores_ENT).numpy()]
    return weighted_total(priors_EN, weights, [likelihoods_of(one_NT) for one_NT in scores_ENT.numpy()], gate.top_k)


def quick_fixed(weights_E: list[float], scores_ENT: Tensor) -> float:
    return fixed_total(np.array(weights_E), [likelihoods_of(one_NT) for one_NT in scores_ENT.numpy()])


@every_top_k
@pytest.mark.parametrize("evidence", EVIDENCE, ids=str)
@pytest.mark.parametrize("portion", [1, 700, 1 << 16])
@pytest.mark.parametrize("block_size", [1, 7, 19, 64])
def test_a_total_is_that_of_the_weights(
    top_k: int | None, evidence: AnyEvidence, portion: int, block_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.mixing.quick_sums._PORTION", portion)
    scores_ENT = scores(37, block_size)
    for gate in (
        PosteriorGate(PRIOR, evidence, top_k),
        UpdatingGate(PRIOR, evidence, top_k, update_every=scores_ENT.shape[2]),
    ):
        assert quick(gate, scores_ENT) == pytest.approx(float(gate.mixed(scores_ENT).sum()), rel=1e-6)


@every_top_k
def test_of_equal_weights_the_first_experts_take_part(top_k: int | None) -> None:
    scores_ENT = scores()
    scores_ENT[1:4] = scores_ENT[0]
    scores_ENT[3, :, 5:] -= 1  # equal until then
    gate = PosteriorGate([1.0] * 5, "prefix", top_k)
    assert quick(gate, scores_ENT) == pytest.approx(float(gate.mixed(scores_ENT).sum()), rel=1e-6)


@every_top_k
def test_experts_of_one_cluster_are_equal_before_there_is_evidence(top_k: int | None) -> None:
    """Their log-weights are the same at the first token, whatever the largest of their groups are later."""
    scores_ENT, gate = scores(), PosteriorGate([1.0] * 5, "prefix", top_k)
    near_NT = 20 * torch.rand(scores_ENT.shape[1:], generator=torch.Generator().manual_seed(1)).double()
    logs_ENT = gate.evidence_before(scores_ENT).double() + near_NT
    expected = mix(gate.weigh(logs_ENT, gate.log_prior_E[:, None, None]), scores_ENT.double()).sum()
    weights = [weights_of(logs_NT) for logs_NT in logs_ENT.numpy()]
    likelihoods = [likelihoods_of(one_NT) for one_NT in scores_ENT.numpy()]
    total = weighted_total(gate.log_prior_E.numpy()[:, None], weights, likelihoods, top_k)
    assert total == pytest.approx(float(expected), rel=1e-6)


@every_top_k
@pytest.mark.parametrize("portion", [700, 1 << 16])
def test_a_fixed_total_is_that_of_the_weights(top_k: int | None, portion: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.mixing.quick_sums._PORTION", portion)
    gate, scores_ENT = FixedGate(PRIOR, top_k), scores()
    total = quick_fixed(gate.log_weights_E.exp().tolist(), scores_ENT)
    assert total == pytest.approx(float(gate.mixed(scores_ENT).sum()), rel=1e-6)


@pytest.mark.parametrize("value", [-90.0, -1e4, -math.inf, math.nan])
def test_a_token_that_nobody_finds_possible_is_left_to_exact_sums(value: float) -> None:
    scores_ENT = scores()
    scores_ENT[:, 36, 18] = value
    assert math.isnan(quick(PosteriorGate(PRIOR), scores_ENT))
    assert math.isnan(quick_fixed([0.2] * 5, scores_ENT))


@every_top_k
@pytest.mark.parametrize("likelihood", [-70.0, -60.0, -45.0])
def test_a_token_that_everybody_is_surprised_by_counts_as_exactly(top_k: int | None, likelihood: float) -> None:
    scores_ENT = scores()
    scores_ENT[:, 3, 5] = likelihood
    scores_ENT[:, 3, 6] = -1.0  # soon after: its group has weights far below its largest
    for gate in (PosteriorGate(PRIOR, top_k=top_k), PosteriorGate(PRIOR, "last_token", top_k)):
        assert quick(gate, scores_ENT) == pytest.approx(float(gate.mixed(scores_ENT).sum()), rel=1e-6)


@every_top_k
def test_an_expert_that_was_far_behind_counts_where_it_takes_the_lead(top_k: int | None) -> None:
    scores_ENT = scores(5, 24)
    scores_ENT[0] = -1.0
    scores_ENT[0, :, 10:12] = -70.0  # within one group it falls behind all others
    gate = PosteriorGate([1e12, *PRIOR[1:]], top_k=top_k)
    assert quick(gate, scores_ENT) == pytest.approx(float(gate.mixed(scores_ENT).sum()), rel=1e-6)


def test_a_sure_expert_who_is_surprised_counts_as_exactly() -> None:
    """The weight of another is e^-38: as small as the probability that the sure expert gives."""
    scores_ENT = torch.full((2, 1, 20), -2.0)
    scores_ENT[1] = -4.0
    scores_ENT[0, 0, 19], scores_ENT[1, 0, 19] = -38.0, -0.1
    gate = PosteriorGate([1.0, 1.0])
    expected = gate.mixed(scores_ENT)
    assert quick(gate, scores_ENT) == pytest.approx(float(expected.sum()), rel=1e-6)
    assert float(expected[0, 19]) > -38.0 + 0.5  # the other's part counts
