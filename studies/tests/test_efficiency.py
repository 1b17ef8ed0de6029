"""Costs between measured performances (C-BTM §A.3), and updates shared by clusters (§A.2)."""

from __future__ import annotations

import math

import pytest

from workbench_studies.cbtm.tables import MeasuredCost, cost_of, elm_flops, speedup

DENSE = [MeasuredCost(20.0, 1e18), MeasuredCost(16.0, 4e18), MeasuredCost(14.0, 16e18)]


def test_costs_are_interpolated_in_their_logarithm() -> None:
    assert cost_of(18.0, DENSE) == pytest.approx(2e18)  # halfway between 1e18 and 4e18
    assert cost_of(15.0, DENSE) == pytest.approx(8e18)
    assert cost_of(19.0, DENSE) == pytest.approx(math.exp(math.log(1e18) + 0.25 * math.log(4)))


def test_what_was_measured_costs_what_was_measured() -> None:
    assert [cost_of(one.performance, DENSE) for one in DENSE] == pytest.approx([one.cost for one in DENSE])
    assert cost_of(16.0, [*DENSE, MeasuredCost(16.0, 3e18)]) == pytest.approx(3e18)


def test_nothing_is_extrapolated() -> None:
    assert cost_of(13.9, DENSE) is None
    assert cost_of(20.1, DENSE) is None
    assert cost_of(15.0, []) is None


def test_the_speedup_is_the_ratio_of_both_costs() -> None:
    ours = [MeasuredCost(19.0, 1e18), MeasuredCost(13.0, 2e18)]
    assert speedup(16.0, DENSE, ours) == pytest.approx(4e18 / (math.sqrt(2) * 1e18))
    assert speedup(13.5, DENSE, ours) is None


@pytest.mark.parametrize("num_clusters", [1, 8, 128])
def test_all_expert_models_together_cost_what_the_dense_one_costs(num_clusters: int) -> None:  # C-BTM A.2
    shape = {"num_layers": 24, "width": 2048, "vocab_size": 50_000, "num_tokens": 168_000_000_000, "context": 2048}
    one = elm_flops(**shape, num_clusters=num_clusters)
    assert num_clusters * one == pytest.approx(elm_flops(**shape, num_clusters=1))
    by_hand = 96 * 24 * 2048**2 * 168e9 / num_clusters * (1 + 2048 / (6 * 2048) + 50_000 / (16 * 24 * 2048))
    assert one == pytest.approx(by_hand)


PAPER = [  # DEMix table 2: layers, width, sequences per update, 10¹² operations per update
    (12, 768, 512, 556),
    (24, 1024, 1024, 3279),
    (24, 1536, 2048, 13_637),
    (24, 2048, 2048, 23_250),
]


@pytest.mark.parametrize(("num_layers", "width", "sequences", "expected"), PAPER)
def test_the_formula_gives_the_papers_table_2(num_layers: int, width: int, sequences: int, expected: int) -> None:
    result = elm_flops(num_layers, width, 50_264, sequences * 1024, 1024, 1)
    assert result / 1e12 == pytest.approx(expected, rel=0.002)
