"""The evidence fitted on dev text: what the fit sees, and which setting it chooses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.analysis.calibration import (
    DECAYS,
    MOST_TOKENS,
    POWERS,
    Calibration,
    DevText,
    calibrate,
    calibrate_from_equal_priors,
)
from engine.errors import MixtureError
from engine.mixing.base import Gate
from engine.mixing.cluster import ClusterPosteriorGate
from engine.mixing.evidence import READINGS, EvidenceRule
from engine.mixing.posterior import PosteriorGate
from tests.engine.clustered import tiny_distances, tiny_routing

PAPER = READINGS["prefix"]
NUM_EXPERTS = 4


def gate_of(rule: EvidenceRule, rows: Sequence[int]) -> Gate:
    return PosteriorGate([1.0] * len(rows), rule)


def text(number: int, *, blocks: int = 12, size: int = 32, turns: int = 1, sure: float = 2.0) -> DevText:
    """Dev text of the domain of expert `number`; on what remains, the better expert changes `turns` times a block.

    Every expert is `sure` nats worse where it is not the better one, and the domain's own is best of all.
    """
    draw = torch.Generator().manual_seed(number)
    scores_ENT = -torch.rand(NUM_EXPERTS, blocks, size, generator=draw, dtype=torch.float64)
    better_NT = torch.randint(NUM_EXPERTS, (blocks, turns), generator=draw).repeat_interleave(-(-size // turns), 1)
    is_worse_ENT = torch.arange(NUM_EXPERTS)[:, None, None] != better_NT[None, :, :size]
    scores_ENT -= sure * is_worse_ENT
    scores_ENT[number] = -0.5
    documents_N = np.arange(blocks) // 2
    return DevText(f"domain {number}", scores_ENT.flatten(1).float(), size, documents_N, frozenset({number}))


def result(now: EvidenceRule = PAPER, **options: float) -> Calibration:
    return calibrate([text(number, **options) for number in range(NUM_EXPERTS)], gate_of, now)


def test_where_the_better_expert_changes_often_evidence_must_forget() -> None:
    steady, changing = result(turns=1), result(turns=8)
    assert changing.best.decay < 0.9
    assert changing.gain.high < steady.gain.low
    assert not changing.keeps
    assert changing.gain.high < 0
    assert changing.by_view["left out"].value < changing.by_view["present"].value


def test_slow_evidence_is_added_where_one_decay_is_not_enough() -> None:
    assert mixed(1.0).best.slow_power > 0
    assert not mixed(0.0).best.slow_power


def mixed(steady: float) -> Calibration:
    """Noisy texts of which one expert is better by `steady` all along, and another, ever again, for eight tokens."""
    texts = []
    for number in range(NUM_EXPERTS):
        draw = torch.Generator().manual_seed(100 + number)
        long, short = (torch.randint(NUM_EXPERTS, (12, turns), generator=draw) for turns in (1, 16))
        experts = torch.arange(NUM_EXPERTS)[:, None, None]
        scores_ENT = -6 * torch.rand(NUM_EXPERTS, 12, 128, generator=draw)
        scores_ENT -= 1.0 * (experts != short.repeat_interleave(8, 1)) + steady * (experts != long.expand(-1, 128))
        texts.append(DevText(f"domain {number}", scores_ENT.flatten(1), 128, np.arange(12), frozenset({number})))
    return calibrate(texts, gate_of, PAPER)


def test_a_setting_that_is_best_already_is_kept() -> None:
    again = result(now=result(turns=8).best, turns=8)
    assert again.keeps
    assert not result(now=EvidenceRule(1.0, 0.02), turns=8).keeps


def test_of_settings_that_are_as_good_the_papers_is_chosen() -> None:
    alike = [
        DevText(f"domain {number}", torch.zeros(NUM_EXPERTS, 64), 32, np.zeros(2, dtype=int), frozenset({number}))
        for number in range(2)
    ]
    chosen = calibrate(alike, gate_of, EvidenceRule(0.5, 0.1))
    assert chosen.best == PAPER
    assert chosen.keeps
    assert chosen.gain.value == 0


def test_the_surface_is_the_change_of_perplexity_against_now() -> None:
    texts = [text(number, turns=4) for number in range(NUM_EXPERTS)]
    fit = calibrate(texts, gate_of, PAPER)
    assert fit.change_DP[DECAYS.index(1.0)][POWERS.index(1.0)] == 0
    expected = np.mean([_change(one, EvidenceRule(0.5, 0.3)) for one in texts])
    assert fit.change_DP[DECAYS.index(0.5)][POWERS.index(0.3)] == pytest.approx(expected)


def test_the_gain_of_a_text_is_that_of_a_choice_made_without_it() -> None:
    texts = [text(0, turns=8), text(1, turns=1, sure=6.0)]
    fit = calibrate(texts, gate_of, PAPER)
    on_the_same_text = np.mean([_change(one, fit.best) for one in texts])
    assert fit.gain.value > on_the_same_text + 0.5  # what is best for one of them is not for the other


def _change(one: DevText, rule: EvidenceRule) -> float:
    """Of perplexity against the paper's reading in %, the mean of both views."""
    losses = [[one.loss(gate_of(each, rows), rows) for each in (rule, PAPER)] for rows in map(one.rows, one.views())]
    return float(np.mean([100 * (after.value / before.value - 1) for after, before in losses]))


def test_only_tokens_that_count_are_fitted() -> None:
    full = text(0, turns=8)
    counted_X = torch.zeros(full.scores_EX.shape[1], dtype=torch.bool)
    counted_X[::2] = True
    loss = DevText(**{**vars(full), "counted_X": counted_X}).loss(gate_of(PAPER, range(4)), range(4))
    assert loss.tokens_N.sum() == counted_X.sum()
    every = full.loss(gate_of(PAPER, range(4)), range(4))
    assert loss.totals_N.sum() < every.totals_N.sum()


def test_a_long_text_is_thinned_to_full_blocks_spread_over_it() -> None:
    size = 64
    total = 3 * MOST_TOKENS + 7
    numbers = torch.arange(total, dtype=torch.float32).expand(2, -1)
    long = DevText("long", numbers, size, np.arange(-(-total // size)), frozenset({0}), counted_X=numbers[0] >= 0)
    thin = long.thin()
    assert thin.scores_EX.shape[1] == MOST_TOKENS == len(thin.counted_X)
    starts_N = thin.scores_EX[0, ::size]
    assert (starts_N % size == 0).all()
    assert (thin.documents_N == starts_N.numpy() // size).all()
    assert starts_N[-1] > 0.9 * total
    assert text(0).thin().scores_EX.shape == text(0).scores_EX.shape


def test_experts_without_a_mixture_are_calibrated_from_equal_priors() -> None:
    texts = [text(number, turns=8) for number in range(NUM_EXPERTS)]
    assert calibrate_from_equal_priors(texts) == calibrate(texts, gate_of, PAPER)


def test_a_posterior_with_clusters_is_calibrated_with_the_distances_of_its_text() -> None:
    """Also where the text is thinned, and where an expert of a cluster is left out."""
    size, blocks = 16, 24
    distances = tiny_distances(size * blocks, size)
    texts = [replace(text(number, blocks=blocks, size=size), distances=distances) for number in range(NUM_EXPERTS)]

    def clustered(rule: EvidenceRule, rows: Sequence[int]) -> Gate:
        routing = replace(tiny_routing(), clusters=[tiny_routing().clusters[row] for row in rows])
        return ClusterPosteriorGate([1.0] * len(rows), routing, rule, temperature=5.0)

    thin = texts[0].thin(16 * size)
    full_N, thin_N = (one.loss(clustered(PAPER, range(4)), range(4)).totals_N for one in (texts[0], thin))
    assert (len(full_N), len(thin_N)) == (24, 16)
    np.testing.assert_allclose(thin_N, full_N[np.arange(16) * 24 // 16])
    assert calibrate(texts, clustered, PAPER).best != PAPER


def test_one_expert_or_one_domain_cannot_be_calibrated() -> None:
    single = DevText("domain", torch.zeros(1, 64), 32, np.zeros(2, dtype=int), frozenset({0}))
    with pytest.raises(MixtureError, match="at least two experts"):
        calibrate([single, single], gate_of, PAPER)
    with pytest.raises(MixtureError, match="at least two domains"):
        calibrate([text(0)], gate_of, PAPER)


def test_a_domain_beside_whose_experts_there_is_nothing_to_choose_has_one_view() -> None:
    full = text(0)
    assert DevText(**{**vars(full), "own": frozenset(range(3))}).views() == ["present"]
    assert DevText(**{**vars(full), "own": frozenset(range(2))}).views() == ["present", "left out"]
    assert full.rows("left out") == [1, 2, 3]


def test_a_domain_of_one_block_shows_no_variance_so_nothing_is_proposed() -> None:
    texts = [text(number, blocks=1 if number == 2 else 12, turns=8) for number in range(NUM_EXPERTS)]
    short = calibrate(texts, gate_of, PAPER)
    assert short.too_short == ("domain 2",)
    assert short.keeps
    assert not result(turns=8).too_short
