"""Sums over stored tokens in NumPy are those of the gates' weights."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.mixing.base import FLOOR, FixedGate, Gate, mix
from engine.mixing.evidence import AnyEvidence, EvidenceRule
from engine.mixing.posterior import PosteriorGate, UpdatingGate
from engine.mixing.score_sums import fixed_sums, posterior_sums

EVIDENCE: list[AnyEvidence] = ["prefix", "last_token", EvidenceRule(0.5, 0.6, 0.98, 0.08)]
PRIORS = ([1, 1, 1, 1, 1], [1, 2, 0, 3, 1], [0, 0, 1, 0, 0])
every_prior = pytest.mark.parametrize("prior", PRIORS)
every_top_k = pytest.mark.parametrize("top_k", [None, 1, 2, 4, 5])


def scores() -> Tensor:
    """Five experts on 37 blocks of 19 tokens, with ties, with tokens that all or one of them cannot predict."""
    scores_ENT = -torch.empty(5, 37, 19).exponential_(1 / 3, generator=torch.Generator().manual_seed(0))
    scores_ENT[1] = scores_ENT[0]  # equal weights at every token
    scores_ENT[3, 3] = scores_ENT[2, 3]
    scores_ENT[2, :, 5] = 2 * FLOOR
    scores_ENT[:, 7, 7] -= 5000  # each probability underflows
    return scores_ENT


def by_weights(gate: Gate, scores_ENT: Tensor) -> Tensor:
    return mix(gate.block(scores_ENT), scores_ENT.double())


@every_prior
@every_top_k
@pytest.mark.parametrize("evidence", EVIDENCE, ids=str)
@pytest.mark.parametrize("portion", [1, 700, 1 << 16])
def test_each_token_has_the_sum_of_its_weights(
    prior: list[float], top_k: int | None, evidence: AnyEvidence, portion: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.mixing.score_sums._PORTION", portion)
    monkeypatch.setattr("engine.mixing.score_sums._MOST_BLOCKS", 30)
    gate, scores_ENT = PosteriorGate(prior, evidence, top_k), scores()
    priors_EN = gate.priors(scores_ENT)[:, :-1].numpy()
    sums_NT = posterior_sums(priors_EN, scores_ENT.numpy(), gate.evidence, top_k, FLOOR)
    torch.testing.assert_close(torch.from_numpy(sums_NT), by_weights(gate, scores_ENT), rtol=1e-12, atol=1e-9)


@every_prior
@every_top_k
def test_each_token_has_the_sum_of_fixed_weights(prior: list[float], top_k: int | None) -> None:
    gate, scores_ENT = FixedGate(prior, top_k), scores()
    sums_M = fixed_sums(gate.log_weights_E.numpy(), scores_ENT.flatten(1).numpy())
    torch.testing.assert_close(torch.from_numpy(sums_M), by_weights(gate, scores_ENT).flatten(), rtol=1e-12, atol=1e-9)


GATES: list[Gate] = [
    PosteriorGate([1, 1, 0, 1, 1]),
    UpdatingGate([1, 1, 0, 1, 1], update_every=30),
    PosteriorGate([1, 1, 0, 1, 1], "last_token", 2),
    UpdatingGate([1, 1, 0, 1, 1], "last_token", update_every=30),
    FixedGate([1, 1, 0, 1, 1]),
]


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: type(gate).__name__)
def test_an_expert_of_weight_0_may_have_no_numbers(gate: Gate) -> None:
    scores_ENT = scores()
    expected = gate.total(scores_ENT)
    scores_ENT[2, 4:6] = -torch.inf
    assert gate.total(scores_ENT) == expected


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: type(gate).__name__)
def test_a_token_that_no_expert_can_predict_has_probability_0(gate: Gate) -> None:
    scores_ENT = scores()
    scores_ENT[:, 36, 18] = -torch.inf
    assert gate.total(scores_ENT) == float(gate.mixed(scores_ENT).sum()) == -torch.inf


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: type(gate).__name__)
@pytest.mark.parametrize("impossible", [-torch.inf, 3 * FLOOR])
def test_a_text_that_each_expert_finds_impossible_somewhere_has_one_total(gate: Gate, impossible: float) -> None:
    """Each at another token: evidence has a floor there, so the block does not add up to what each says of it."""
    scores_ENT = scores()
    for expert in range(5):
        scores_ENT[expert, 3:6, expert] = impossible
    mixed = float(gate.mixed(scores_ENT).sum())
    assert mixed > -torch.inf
    assert gate.total(scores_ENT) == pytest.approx(mixed, rel=1e-12)
