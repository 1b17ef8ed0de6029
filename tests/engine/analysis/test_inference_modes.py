"""The paper's modes from scores alone, on texts whose answer is known."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.analysis.inference_modes import (
    compare_inference_modes,
    running_mean,
    stable_after,
    trajectory,
)
from engine.inference.scores import as_blocks
from engine.mixing.posterior import PosteriorGate, UpdatingGate, estimate_prior

BLOCK = 16


def scores(means: list[float], tokens: int = 320, seed: int = 0) -> Tensor:
    """Log-likelihoods around a mean for each expert."""
    noise = torch.randn(len(means), tokens, generator=torch.Generator().manual_seed(seed)) * 0.3
    return torch.tensor(means)[:, None] + noise


def test_on_text_of_one_expert_the_modes_come_in_the_papers_order() -> None:
    scores_EX = scores([-2.0, -4.0, -5.0, -6.0])
    prior_E = estimate_prior(PosteriorGate([1.0] * 4), as_blocks(scores([-2.0, -4.0, -5.0, -6.0], seed=1), BLOCK), 20)
    modes = compare_inference_modes(scores_EX, BLOCK, own_row=0, cached_prior_E=prior_E)
    assert modes.label == modes.naive
    assert modes.average > modes.uniform > modes.updating
    assert modes.updating == pytest.approx(modes.cached, rel=0.05)
    assert modes.cached == pytest.approx(modes.label, rel=0.02)


def test_where_two_experts_know_a_half_each_mixing_beats_the_best_single_one() -> None:
    scores_EX = scores([-3.0, -3.0])
    scores_EX[0, ::2] += 2.0
    scores_EX[1, 1::2] += 2.0
    modes = compare_inference_modes(scores_EX, BLOCK)
    assert modes.average < 0.8 * modes.naive  # and the posterior, sure of one too early, gains nothing here
    assert modes.label is None
    assert modes.cached is None


def test_a_trajectory_settles_where_its_text_does() -> None:
    blocks_ENT = as_blocks(scores([-2.0, -2.6, -2.6]), BLOCK)
    points_EN = trajectory(UpdatingGate([1.0] * 3, newest_weight=0.3, update_every=BLOCK), blocks_ENT)
    assert points_EN.shape == (3, 21)
    torch.testing.assert_close(points_EN.sum(0), torch.ones(21, dtype=torch.float64))
    assert points_EN[0, -1] > 0.9
    assert 0 < (stable_after(points_EN) or 0) < 10
    assert stable_after(points_EN[:, -1:]) == 0


def test_what_moves_in_the_last_tenth_is_not_stable() -> None:
    first_N = torch.full((101,), 0.5)
    first_N[:91] = 0.8
    assert stable_after(torch.stack([first_N, 1 - first_N])) is None
    first_N[90] = 0.5
    assert stable_after(torch.stack([first_N, 1 - first_N])) == 90


def test_the_oracle_takes_the_best_expert_of_each_block() -> None:
    scores_EX = scores([-3.0, -3.0], tokens=2 * BLOCK + 5)
    scores_EX[0, :BLOCK] += 1.0
    scores_EX[1, BLOCK:] += 1.0
    chosen = torch.cat([scores_EX[0, :BLOCK], scores_EX[1, BLOCK:]])
    modes = compare_inference_modes(scores_EX, BLOCK, own_row=0)
    assert modes.oracle == pytest.approx(float((-chosen.double().mean()).exp()))
    assert modes.oracle < modes.naive
    assert modes.label is not None
    assert modes.naive <= modes.label


def test_no_posterior_by_the_full_prefix_is_better_than_the_oracle() -> None:
    for seed in range(5):
        modes = compare_inference_modes(scores([-2.0, -2.1, -2.2], tokens=70, seed=seed), BLOCK)
        assert modes.oracle <= min(modes.uniform, modes.updating) * (1 + 1e-9)


def test_a_running_mean_ends_in_the_cached_prior() -> None:
    blocks_ENT = as_blocks(scores([-2.0, -2.1, -2.3]), BLOCK)
    gate = PosteriorGate([1.0] * 3)
    means_EN = running_mean(gate, blocks_ENT)
    torch.testing.assert_close(means_EN[:, -1], estimate_prior(gate, blocks_ENT, blocks_ENT.shape[1]))
    torch.testing.assert_close(means_EN[:, 7], estimate_prior(gate, blocks_ENT, 7))
    torch.testing.assert_close(means_EN[:, 0], torch.full((3,), 1 / 3, dtype=torch.float64))
