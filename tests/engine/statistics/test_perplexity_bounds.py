"""The interval of a perplexity over the blocks of its text."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from engine.statistics.estimates import perplexity_bounds


def test_blocks_of_one_size_have_students_interval_of_their_means() -> None:
    losses_NT = np.random.default_rng(0).normal(3.0, 1.0, (7, 16)) + np.arange(7)[:, None] / 5
    bounds = perplexity_bounds(losses_NT.ravel(), np.ones(losses_NT.size, dtype=bool), 16)
    means_N = losses_NT.mean(1)
    expected = stats.t.interval(0.95, 6, means_N.mean(), stats.sem(means_N))
    assert bounds == pytest.approx(tuple(np.exp(expected)))


def test_only_tokens_that_count_are_in_the_interval_and_one_block_has_none() -> None:
    losses_X, counted_X = np.array([1.0, 9.0, 2.0, 9.0, 3.0, 9.0]), np.array([True, False] * 3)
    low, high = perplexity_bounds(losses_X, counted_X, 2) or (0.0, 0.0)
    assert low < np.exp(2.0) < high
    assert perplexity_bounds(losses_X[:2], counted_X[:2], 2) is None
