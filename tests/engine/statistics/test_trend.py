"""A trend tells noise from learning, and smoothing keeps a straight line straight."""

from __future__ import annotations

import numpy as np
import pytest

from engine.statistics.trend import FEWEST, recent_trend, smooth


def test_a_straight_line_is_its_own_trend_and_stays_straight() -> None:
    line = [5.0 - 0.5 * place for place in range(20)]
    trend = recent_trend(range(20), line)
    assert trend is not None
    assert (trend.change, trend.first, trend.last) == (pytest.approx(-4.5), 10, 19)
    assert trend.is_clear
    assert smooth(line, 7) == pytest.approx(line)


@pytest.mark.parametrize("num_points", [6, 10, 50, 400])
def test_noise_rarely_has_a_trend(num_points: int) -> None:
    chance = np.random.default_rng(num_points)
    trends = [recent_trend(range(num_points), chance.normal(size=num_points)) for _ in range(1000)]
    assert 0.02 < np.mean([trend is not None and trend.is_clear for trend in trends]) < 0.08


def test_noise_that_wanders_slowly_is_not_taken_for_a_trend_more_often() -> None:
    chance, hits = np.random.default_rng(0), 0
    for _ in range(500):
        noise = chance.normal(size=400)
        for place in range(1, 400):
            noise[place] += 0.7 * noise[place - 1]
        trend = recent_trend(range(400), noise)
        hits += trend is not None and trend.is_clear
    assert hits / 500 < 0.1


def test_a_falling_loss_under_noise_is_seen() -> None:
    steps = np.linspace(0, 1, 40)
    trend = recent_trend(steps, 2 + 2 * np.exp(-4 * steps) + np.random.default_rng(0).normal(size=40) * 0.02)
    assert trend is not None
    assert trend.is_clear
    assert trend.change + 3 * trend.error > -0.3 > trend.change - 5 * trend.error


def test_too_few_points_have_no_trend() -> None:
    assert recent_trend(range(FEWEST - 1), range(FEWEST - 1)) is None
