"""The gate of MoDE is a softmax; closed, it is closed to the last bit, and can still learn to open."""

from __future__ import annotations

import pytest
import torch

from engine.methods.mode.block import ODDS_SCALE, gate_weights


def some_slopes(scale: float = 1.0, num_experts: int = 3) -> torch.Tensor:
    return torch.randn(2, 5, num_experts, generator=torch.Generator().manual_seed(1)) * scale


@pytest.mark.parametrize("scale", [0.0, 1.0, 60.0, 1e4])
@pytest.mark.parametrize("odds", [[0.0, 0.0, 0.0], [0.1, -0.1, 0.0], [3.0, 1e-30, -1e30]])
def test_weights_sum_to_one_however_far_the_logits_are_apart(scale: float, odds: list[float]) -> None:  # L5
    weights = gate_weights(some_slopes(scale), torch.tensor(odds))
    assert bool((weights >= 0).all())
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 5), atol=1e-6, rtol=0)


def test_it_is_the_softmax_of_linear_logits_relative_to_the_backbones() -> None:
    slopes, odds = some_slopes(3.0), torch.tensor([0.5, -2.0, 1e-3])
    logits = torch.cat([torch.zeros(2, 5, 1), slopes + (ODDS_SCALE * odds.abs()).log()], -1)
    torch.testing.assert_close(gate_weights(slopes, odds), logits.softmax(-1))


def test_a_closed_expert_weighs_nothing_at_all_and_has_a_gradient() -> None:
    odds = torch.zeros(1, requires_grad=True)
    weights = gate_weights(torch.zeros(1, 1, 1), odds)
    assert weights.tolist() == [[[1.0, 0.0]]]
    weights[..., 1].sum().backward()
    assert odds.grad is not None
    assert odds.grad.tolist() == [ODDS_SCALE]


def test_an_expert_that_is_off_leaves_the_others_in_proportion() -> None:
    slopes, odds = some_slopes(), torch.tensor([0.3, 0.2, 0.1])
    of_all, of_two = gate_weights(slopes, odds), gate_weights(slopes[..., :2], odds[:2])
    kept = of_all[..., :3]
    torch.testing.assert_close(of_two, kept / kept.sum(-1, keepdim=True))
