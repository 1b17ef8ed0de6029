"""Correlations and shares know how little their points say."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from engine.statistics.estimates import Draws, Estimate, Floats, student_mean
from workbench_studies.core.averages import correlation_of_pairs, correlation_of_points, share


def table_of(traits_D: Floats, draw: np.random.Generator, noise: float) -> Floats:
    """A symmetric table of closeness by one trait of each domain, with noise of rows and columns."""
    size = len(traits_D)
    rows, columns = draw.normal(0, noise, (2, size))
    return np.asarray(-np.abs(traits_D[:, None] - traits_D[None]) + rows[:, None] + columns[None])


def test_tables_that_have_nothing_in_common_seldom_seem_to() -> None:
    """Cells share rows and columns: an interval that takes them for points fails far more often than one in forty."""
    ours = fishers = 0
    for trial in range(200):
        draw = np.random.default_rng(trial)
        one, other = (table_of(draw.normal(size=8), draw, 0.5) for _ in range(2))
        result = correlation_of_pairs([one], other, num_draws=400)
        away = ~np.eye(8, dtype=bool)
        as_points = correlation_of_points([one[away].tolist()], other[away].tolist())
        assert result is not None
        assert as_points is not None
        ours += result.low > 0
        fishers += as_points.low > 0
    assert ours / 200 <= 0.06
    assert fishers / 200 > 2 * max(ours, 5) / 200


def test_tables_that_correlate_are_measured_to() -> None:
    draw = np.random.default_rng(0)
    traits_D = draw.normal(size=8)
    tables = [table_of(traits_D, draw, 0.1) for _ in range(2)]
    result = correlation_of_pairs(tables, -np.abs(traits_D[:, None] - traits_D[None]))
    assert result is not None
    away = ~np.eye(8, dtype=bool)
    expected = stats.pearsonr(np.mean(tables, 0)[away], -np.abs(traits_D[:, None] - traits_D[None])[away]).statistic
    assert result.value == pytest.approx(expected)
    assert 0 < result.low < result.value <= result.high <= 1
    assert len(result.by_seed) == 2


def test_a_table_that_does_not_vary_correlates_with_nothing() -> None:
    varied = np.arange(25.0).reshape(5, 5)
    assert correlation_of_pairs([np.ones((5, 5))], varied) is None
    assert correlation_of_pairs([varied], np.ones((5, 5))) is None
    assert correlation_of_points([[1.0, 2.0, 3.0]], [1.0, 2.0, 3.0]) is None


def test_a_share_of_all_domains_is_not_certain_and_seeds_are_not_more_domains() -> None:
    first_time, twice = share([[True] * 12]), share([[True] * 12] * 2)
    assert (first_time.value, twice.by_seed) == (1.0, (1.0, 1.0))
    assert (first_time.low, first_time.high) == pytest.approx(
        (0.7575, 1.0), abs=1e-4
    )  # Wilson's, by hand: 12 / (12 + 1.96²)
    assert (twice.low, twice.high) == (first_time.low, first_time.high)
    mixed = share([[True, True, False, False], [True, False, False, False]])
    assert (mixed.value, mixed.by_seed) == (0.375, (0.5, 0.25))
    assert mixed.low < 0.375 < mixed.high


SEEDS = (20.0, 10.1, 26.0)  # as three seeds of a replication differed


def test_text_that_is_added_to_three_seeds_never_makes_them_surer() -> None:
    """Satterthwaite's degrees of freedom grow with it, and the interval of the sum alone becomes narrower."""
    narrowest = student_mean(SEEDS)
    for noise in (0.0, 1.0, 5.0, 20.0, 100.0):  # standard error of the text
        text_R = np.random.default_rng(0).normal(0, noise, 2000)
        result = Draws().estimate(SEEDS, [text_R] * 3)
        assert result.low <= narrowest.low < narrowest.high <= result.high


def test_every_estimate_is_as_wide_as_its_seeds_and_no_wider_than_what_it_measures_can_be() -> None:
    divided = [[True] * 12, [True] * 6 + [False] * 6]
    points = [[1.0, 2.0, 3.0, 4.1, 5.0], [1.0, 3.0, 1.0, 3.0, 2.0]]
    tables = [np.arange(25.0).reshape(5, 5), -np.random.default_rng(0).normal(size=(5, 5))]
    for estimate in (
        share(divided),
        correlation_of_points(points, [1.0, 2.0, 3.0, 4.0, 5.0]),
        correlation_of_pairs(tables, np.arange(25.0).reshape(5, 5)),
    ):
        assert estimate is not None
        narrowest = student_mean(estimate.by_seed)
        reach = narrowest.high - narrowest.mean
        assert -1 <= estimate.low <= max(0.0, estimate.value - reach)
        assert min(1.0, estimate.value + reach) <= estimate.high <= 1


def test_a_single_seed_keeps_the_interval_of_its_text() -> None:
    assert Estimate(1.0, 0.5, 1.5, (1.0,)).over_seeds() == Estimate(1.0, 0.5, 1.5, (1.0,))
