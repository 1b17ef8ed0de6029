"""Intervals of means, tried on numbers whose spread is known."""

from __future__ import annotations

import numpy as np
import pytest

from engine.statistics.estimates import bootstrap_mean


def test_the_interval_is_that_of_the_normal_distribution_where_that_is_known() -> None:
    values = np.random.default_rng(0).normal(5.0, 2.0, 400)
    result = bootstrap_mean(values)
    half = 1.96 * values.std() / 20
    assert result.mean == pytest.approx(values.mean())
    assert (result.low, result.high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.03)


def test_nineteen_of_twenty_intervals_hold_the_true_mean() -> None:
    draw = np.random.default_rng(1)
    intervals = [bootstrap_mean(draw.binomial(32, 0.25, 50) / 32) for _ in range(200)]
    assert sum(interval.low <= 0.25 <= interval.high for interval in intervals) == pytest.approx(190, abs=9)


def test_differences_of_pairs_are_surer_than_the_difference_of_two_means() -> None:
    draw = np.random.default_rng(2)
    first = draw.normal(0, 3.0, 60)
    second = first + 0.5 + draw.normal(0, 0.2, 60)
    paired, by_itself = bootstrap_mean(second - first), bootstrap_mean(second)
    assert paired.low > 0
    assert by_itself.low <= 0 <= by_itself.high
    assert paired.high - paired.low < (by_itself.high - by_itself.low) / 5


def test_equal_values_leave_no_doubt_and_the_same_seed_gives_the_same_interval() -> None:
    result = bootstrap_mean([0.25] * 10)
    assert (result.mean, result.low, result.high) == (0.25, 0.25, 0.25)
    assert bootstrap_mean([1.0, 2.0, 4.0]) == bootstrap_mean([1.0, 2.0, 4.0])
