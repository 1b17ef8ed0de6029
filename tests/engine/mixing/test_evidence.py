"""Evidence that forgets and is tempered: the paper's readings are points of it, and a stream is the scored text."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from engine.config import Evidence
from engine.errors import EngineError
from engine.mixing.base import keep_top, normalised_prior
from engine.mixing.evidence import READINGS, EvidenceRule, name_of_reading, rule_of
from engine.mixing.gates.posterior import PosteriorGateConfig
from engine.mixing.posterior import PosteriorGate, UpdatingGate, end_of_block_posteriors
from workbench.specs.gates import changed_gate, dump_gate, load_gate

PRIOR = [1.0, 2.0, 0.0, 4.0]
SHARES = st.floats(0, 1, allow_subnormal=False)
POWERS = st.floats(0, 3, allow_subnormal=False)
RULES = st.builds(
    EvidenceRule, decay=SHARES, power=POWERS, slow_decay=SHARES, slow_power=st.one_of(st.just(0.0), POWERS)
)


def scores(blocks: int = 3, tokens: int = 20, seed: int = 0) -> Tensor:
    """Log-likelihoods [E, N, T] as they are stored; one token is impossible for an expert."""
    drawn = -torch.rand(4, blocks, tokens, generator=torch.Generator().manual_seed(seed)).double() * 8
    drawn[1, 0, 3] = -torch.inf
    return drawn


def seen_before(logprobs_ENT: Tensor, evidence: Evidence) -> Tensor:
    """The evidence as both readings define it, without a decay or a power."""
    seen_ENT = torch.zeros_like(logprobs_ENT)
    before = logprobs_ENT[..., :-1].clamp(min=-1e4)
    seen_ENT[..., 1:] = before.cumsum(-1) if evidence == "prefix" else before
    return seen_ENT


@pytest.mark.parametrize("top_k", [None, 2])
@pytest.mark.parametrize("evidence", READINGS)
def test_the_papers_readings_are_points_to_the_bit(evidence: Evidence, top_k: int | None) -> None:
    scores_ENT, rule = scores(), READINGS[evidence]
    expected = keep_top(seen_before(scores_ENT, evidence) + normalised_prior(PRIOR)[:, None, None], top_k)
    for given_as in (evidence, rule):
        gate = PosteriorGate(PRIOR, given_as, top_k)
        assert torch.equal(gate.block(scores_ENT), expected)
    by_name, by_rule = (UpdatingGate(PRIOR, one, top_k, update_every=7) for one in (evidence, rule))
    assert torch.equal(by_name.mixed(scores_ENT), by_rule.mixed(scores_ENT))
    assert by_name.total(scores_ENT) == by_rule.total(scores_ENT)


@given(RULES)
def test_the_evidence_of_a_stream_is_that_of_the_scored_text(rule: EvidenceRule) -> None:
    gate, scores_ET = PosteriorGate(PRIOR, rule), scores(blocks=1)[:, 0]
    seen_ET, weights_ET, stream = gate.evidence_before(scores_ET), gate.block(scores_ET[:, None])[:, 0], gate.start()
    for position, scores_E in enumerate(scores_ET.unbind(1)):
        torch.testing.assert_close(gate.evidence_of(stream.belief), seen_ET[:, position], atol=1e-9, rtol=1e-12)
        torch.testing.assert_close(stream.log_weights(), weights_ET[:, position], atol=1e-9, rtol=0)
        stream.observe(scores_E, 0)
    torch.testing.assert_close(gate.evidence_of(stream.belief), gate.evidence_at_end(scores_ET), atol=1e-9, rtol=1e-12)


@given(SHARES)
def test_the_recurrence_of_a_stream_is_that_of_a_text_to_the_bit(decay: float) -> None:
    gate, scores_ET = PosteriorGate(PRIOR, EvidenceRule(decay)), scores(blocks=1)[:, 0]
    seen_ET, stream = gate.evidence_before(scores_ET), gate.start()
    for position, scores_E in enumerate(scores_ET.unbind(1)):
        assert torch.equal(gate.evidence_of(stream.belief), seen_ET[:, position])
        stream.observe(scores_E, 0)


@given(RULES, st.integers(1, 19))
def test_a_stream_that_is_cut_goes_on_as_if_it_were_not(rule: EvidenceRule, cut: int) -> None:
    gate, scores_ET = UpdatingGate(PRIOR, rule, update_every=6), scores(blocks=1)[:, 0]
    full, first = gate.start(), gate.start()
    for scores_E in scores_ET[:, :cut].unbind(1):
        full.observe(scores_E, 0)
        first.observe(scores_E, 0)
    resumed = gate.start(first.belief)
    for scores_E in scores_ET[:, cut:].unbind(1):
        assert torch.equal(full.log_weights(), resumed.log_weights())
        full.observe(scores_E, 0)
        resumed.observe(scores_E, 0)


@given(RULES)
def test_weights_sum_to_one_and_an_expert_without_a_share_stays_without(rule: EvidenceRule) -> None:
    for gate in (PosteriorGate(PRIOR, rule), UpdatingGate(PRIOR, rule, update_every=7)):
        weights_ENT = gate.block(scores()).exp()
        torch.testing.assert_close(weights_ENT.sum(0), torch.ones(3, 20, dtype=torch.float64))
        assert not weights_ENT[2].any()


@given(SHARES)
def test_without_power_the_prior_stays(decay: float) -> None:
    gate = PosteriorGate(PRIOR, EvidenceRule(decay, 0.0))
    expected_E = normalised_prior(PRIOR).log_softmax(0)
    assert torch.equal(gate.block(scores()), expected_E[:, None, None].expand(4, 3, 20))
    torch.testing.assert_close(end_of_block_posteriors(gate, scores()).log(), expected_E[:, None].expand(4, 3))


def test_the_rule_is_its_formula_written_out() -> None:
    scores_ENT = scores().clamp(min=-9)
    weights_E = PosteriorGate(PRIOR, EvidenceRule(0.5, 0.3)).block(scores_ENT)[:, 1, 3].exp()
    past = scores_ENT[:, 1]
    evidence_E = 0.25 * past[:, 0] + 0.5 * past[:, 1] + past[:, 2]
    expected_E = torch.tensor(PRIOR, dtype=torch.float64) * (0.3 * evidence_E).exp()
    torch.testing.assert_close(weights_E, expected_E / expected_E.sum())
    with_slow_E = PosteriorGate(PRIOR, EvidenceRule(0.5, 0.3, 1.0, 0.1)).block(scores_ENT)[:, 1, 3].exp()
    expected_E *= (0.1 * past[:, :3].sum(1)).exp()
    torch.testing.assert_close(with_slow_E, expected_E / expected_E.sum())


@given(RULES)
def test_the_total_of_a_text_is_the_sum_of_its_tokens(rule: EvidenceRule) -> None:
    gate = PosteriorGate([1.0, 2.0, 3.0, 4.0], rule)
    assert gate.total(scores(4)) == pytest.approx(float(gate.mixed(scores(4)).sum()), rel=1e-9)


def test_a_reading_with_a_name_is_stored_by_it() -> None:
    assert load_gate({"kind": "posterior", "evidence": {"decay": 0}}) == PosteriorGateConfig(evidence="last_token")
    assert PosteriorGateConfig(evidence=EvidenceRule(1.0, 1.0)).evidence == "prefix"
    tempered = PosteriorGateConfig(evidence=EvidenceRule(0.9, 0.3))
    assert dump_gate(tempered)["evidence"] == {"decay": 0.9, "power": 0.3, "slow_decay": 1.0, "slow_power": 0.0}
    assert EvidenceRule(0.9, 0.3, slow_decay=0.5) == EvidenceRule(0.9, 0.3)  # slow evidence without a power is none
    assert load_gate(dump_gate(tempered)) == tempered
    assert rule_of("last_token") == EvidenceRule(0.0, 1.0)


def test_a_change_of_one_part_keeps_the_other() -> None:
    before = PosteriorGateConfig(evidence=EvidenceRule(0.9, 0.3))
    assert changed_gate(before, {"evidence": {"power": 0.5}}) == PosteriorGateConfig(evidence=EvidenceRule(0.9, 0.5))
    assert changed_gate(before, {"evidence": "last_token"}) == PosteriorGateConfig(evidence="last_token")
    assert changed_gate(before, {"top_k": 2}) == PosteriorGateConfig(top_k=2, evidence=EvidenceRule(0.9, 0.3))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("suffix", "no evidence “suffix”"),
        ({"decay": 1.5}, "decay must be at most 1"),
        ({"power": -1.0}, "power must be at least 0"),
        ({"half_life": 3}, "no setting “half_life”"),
    ],
)
def test_evidence_that_does_not_exist_is_refused(wrong: object, says: str) -> None:
    with pytest.raises(EngineError, match=says):
        name_of_reading(wrong)
