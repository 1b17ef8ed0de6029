"""Routings find the expert that knows; they do not care about order, and with one expert they are that expert."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from engine.analysis.fewshot.routing import (
    ROUTINGS,
    Answered,
    Answers,
    Nearness,
    RoutingVariant,
    compare_routings,
    divisors,
    fixed_by_performance,
    keep_best,
    updating_by_performance,
)

NUM_EXAMPLES, NUM_OPTIONS, LENGTHS = 60, 3, torch.tensor([1, 2, 2])
KNOWS = 2  # the expert that knows the answers


def answers(seed: int, num_experts: int = 4, num_examples: int = NUM_EXAMPLES) -> Answers:
    """All experts are as loud as one another; one is right nine times of ten."""
    chance = torch.Generator().manual_seed(seed)
    labels_N = torch.randint(NUM_OPTIONS, (num_examples,), generator=chance)
    scores_ENOT = -4 * torch.rand(num_experts, num_examples, NUM_OPTIONS, 2, generator=chance) - 0.1
    knows_N = torch.rand(num_examples, generator=chance) < 0.9
    for example in knows_N.nonzero()[:, 0].tolist():
        scores_ENOT[KNOWS, example] = -3.0
        scores_ENOT[KNOWS, example, labels_N[example]] = -0.2
    scores_ENOT[:, :, LENGTHS == 1, 1] = 0  # behind the end of the short option
    return Answers(scores_ENOT, labels_N, divisors(LENGTHS, "none"))


def episode(num_experts: int = 4) -> Answered:
    return Answered(answers(0, num_experts), answers(1, num_experts, 8), answers(2, num_experts, 8))


def near(num_experts: int) -> Tensor:
    """Weights that follow the examples, as if the right cluster were the nearest."""
    weights_EN = torch.rand(num_experts, NUM_EXAMPLES, generator=torch.Generator().manual_seed(5)) * 0.2
    weights_EN[KNOWS] = 1
    return weights_EN.log()


def reordered(answered: Answered, order: list[int]) -> Answered:
    parts = (answered.test, answered.permuted, answered.validation)
    return Answered(*(Answers(one.scores_ENOT[order], one.labels_N, one.divisors_O) for one in parts))


def nearness(weights_EN: Tensor) -> Nearness:
    return lambda top_k: keep_best(weights_EN.double(), torch.zeros_like(weights_EN).double(), top_k)


@pytest.mark.parametrize("routing", ROUTINGS)
def test_a_routing_that_finds_the_expert_who_knows_beats_equal_weights(routing: str) -> None:
    result = compare_routings(episode(), ROUTINGS, [1], nearness=nearness(near(4)))
    assert result.by_expert[KNOWS] > 0.85
    assert max(by_itself for expert, by_itself in enumerate(result.by_expert) if expert != KNOWS) < 0.6
    assert result.by_variant[RoutingVariant(routing, 1)] > result.by_variant[RoutingVariant("equal")] + 0.1  # type: ignore[arg-type]


def test_top_1_of_fixed_routing_is_the_expert_who_knows() -> None:
    result = compare_routings(episode(), ["fixed-validation"], [1])
    assert result.by_variant[RoutingVariant("fixed-validation", 1)] == result.by_expert[KNOWS]


def test_the_order_of_the_experts_changes_nothing() -> None:  # L6
    order = [3, 0, 2, 1]
    plain = compare_routings(episode(), ROUTINGS, [1, 2], nearness=nearness(near(4)))
    moved = compare_routings(reordered(episode(), order), ROUTINGS, [1, 2], nearness=nearness(near(4)[order]))
    assert moved.by_variant == plain.by_variant
    assert moved.by_expert == [plain.by_expert[expert] for expert in order]


def test_one_expert_is_itself_under_every_routing() -> None:  # L2
    one = reordered(episode(), [KNOWS])
    result = compare_routings(one, ROUTINGS, [1, 4], nearness=nearness(near(4)[[KNOWS]]))
    assert set(result.by_variant) == {RoutingVariant("equal"), *(RoutingVariant(routing) for routing in ROUTINGS)}
    assert set(result.by_variant.values()) == {result.by_expert[0]}
    log_weights_1N = updating_by_performance(one.test, None, 0.7)
    assert torch.equal(log_weights_1N, torch.zeros_like(log_weights_1N))  # to the bit


def test_weights_sum_to_1_with_every_top_k() -> None:  # L5
    for top_k in (1, 2, 3, None):
        for weights_EN in (
            updating_by_performance(answers(0), top_k, 0.7),
            fixed_by_performance(answers(1, num_examples=8), NUM_EXAMPLES, top_k),
        ):
            assert weights_EN.exp().sum(0).tolist() == pytest.approx([1] * NUM_EXAMPLES, abs=1e-9)


def test_performance_routing_is_a_softmax_over_accuracies() -> None:
    trial = answers(1, num_examples=8)
    accuracies = trial.is_right_EN.mean(1).tolist()
    total = sum(map(math.exp, accuracies))
    weights_E = fixed_by_performance(trial, 3, None).exp()[:, 0]
    assert weights_E.tolist() == pytest.approx([math.exp(one) / total for one in accuracies])


def test_updating_knows_only_what_came_before() -> None:
    full = answers(0)
    started = Answers(full.scores_ENOT[:, :10], full.labels_N[:10], full.divisors_O)
    weights_EN = updating_by_performance(full, None, 0.7)
    assert torch.equal(weights_EN[:, :10], updating_by_performance(started, None, 0.7))
    assert weights_EN[:, 0].exp().tolist() == pytest.approx([1 / 4] * 4)
    expected_E = 0.3 * weights_EN[:, 6].exp() + 0.7 * full.is_right_EN[:, 6].softmax(0)
    assert weights_EN[:, 7].exp().tolist() == pytest.approx(expected_E.tolist())


def test_of_equal_experts_those_with_likelier_right_options_stay_and_else_all() -> None:
    same_EN = torch.tensor([[0.2], [0.4], [0.4]]).double().log()
    kept = keep_best(same_EN, torch.tensor([[0.0], [-3.0], [-2.0]]), 1)
    assert kept.exp()[:, 0].tolist() == pytest.approx([0, 0, 1])
    kept = keep_best(same_EN, torch.tensor([[9.0], [-2.0], [-2.0]]), 1)
    assert kept.exp()[:, 0].tolist() == pytest.approx([0, 0.5, 0.5])


def test_experts_are_mixed_token_by_token() -> None:
    scores_ENOT = torch.tensor([[[[0.5, 0.1]]], [[[0.1, 0.5]]]]).log()
    both = Answers(scores_ENOT.expand(2, 1, 2, 2).clone(), torch.tensor([1]), torch.ones(2).double())
    both.scores_ENOT[:, :, 1] = math.log(0.25)  # 0.3 · 0.3 is more than 0.25², the mean of 0.5 · 0.1 is less
    half = torch.tensor([[0.5], [0.5]]).log()
    assert both.best_options(half).tolist() == [0]


def test_options_are_compared_by_their_probability_unless_their_tokens_are_to_count() -> None:
    scores_ENOT = torch.tensor([[[[-2.0, 0.0], [-1.5, -1.5]]]])
    for normalise, best in (("none", 0), ("tokens", 1)):
        counted = Answers(scores_ENOT, torch.tensor([0]), divisors(torch.tensor([1, 2]), normalise))  # type: ignore[arg-type]
        assert counted.best_options(torch.zeros(1, 1)).tolist() == [best]
