"""Bradley-Terry ratings agree with an independent computation, and say nothing that the votes do not say."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from engine.statistics.bradley_terry import MEAN, SCALE, Votes, connected_groups, rate


def votes_of(rows: list[tuple[int, int, float]], num_players: int, clusters: list[int] | None = None) -> Votes:
    """Votes from (first, second, share of the first); each is a cluster of its own unless they are given."""
    first, second, shares = (np.array(column) for column in zip(*rows, strict=True))
    return Votes(np.array(clusters or range(len(rows))), first, second, shares.astype(float), num_players)


def drawn(strengths: np.ndarray, number: int, seed: int) -> list[tuple[int, int, float]]:
    """Votes that the model gives, a fifth of them ties."""
    random, rows = np.random.default_rng(seed), []
    for _ in range(number):
        first, second = random.choice(len(strengths), 2, replace=False)
        wins = random.random() < 1 / (1 + np.exp(strengths[second] - strengths[first]))
        rows.append((int(first), int(second), 0.5 if random.random() < 0.2 else float(wins)))
    return rows


def by_logistic_regression(rows: list[tuple[int, int, float]], num_players: int) -> np.ndarray:
    """As FastChat computes it: a logistic regression without penalty, each vote twice, a tie once for each."""
    features, outcomes = [], []
    for first, second, share in rows:
        for outcome in (1, 0) if share == 0.5 else (int(share), int(share)):
            row = np.zeros(num_players)
            row[first], row[second] = 1, -1
            features.append(row)
            outcomes.append(outcome)
    model = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-10, max_iter=10_000).fit(features, outcomes)
    ratings = SCALE * model.coef_[0]
    return np.asarray(MEAN + ratings - ratings.mean())


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_ratings_are_those_of_a_logistic_regression_without_penalty(seed: int) -> None:
    rows = drawn(np.array([1.0, 0.3, -0.2, -1.1]), 200, seed)
    ratings = rate(votes_of(rows, 4), num_resamples=2).ratings
    assert ratings == pytest.approx(by_logistic_regression(rows, 4), abs=0.05)
    assert ratings.mean() == pytest.approx(1000)


def test_two_models_differ_by_the_odds_of_their_wins() -> None:
    rows = [(0, 1, 1.0)] * 30 + [(1, 0, 1.0)] * 8 + [(0, 1, 0.5)] * 4
    high, low = rate(votes_of(rows, 2), num_resamples=2).ratings
    assert high - low == pytest.approx(400 * np.log10(32 / 10))


def test_a_lopsided_but_bounded_vote_is_still_fitted() -> None:
    rows = [(0, 1, 1.0)] * 999 + [(1, 0, 1.0)] + [(1, 2, 1.0)] * 999 + [(2, 1, 1.0)]
    ratings = rate(votes_of(rows, 3), num_resamples=2).ratings
    assert ratings[0] - ratings[1] == pytest.approx(400 * np.log10(999), abs=1e-6)


def test_players_that_no_wins_link_in_both_directions_are_in_other_groups() -> None:
    wins = np.zeros((4, 4))
    wins[0, 1] = wins[1, 2] = wins[2, 1] = 1  # 0 never lost; 3 has no vote
    groups = connected_groups(wins)
    assert groups[1] == groups[2]
    assert len(set(groups)) == 3
    wins[2, 0] = 0.5  # a tie links
    assert len(set(connected_groups(wins))) == 2


def test_a_bound_that_some_resamples_do_not_give_is_infinite() -> None:
    """One loss among twelve: a third of the resamples has none, and then nothing bounds the winner from above."""
    rows = [(0, 1, 1.0)] * 11 + [(0, 1, 0.0)]
    fitted = rate(votes_of(rows, 2))
    assert fitted.high[0] == np.inf
    assert fitted.low[1] == -np.inf
    assert 1000 < fitted.low[0] < fitted.ratings[0]
    low, high = fitted.difference(0, 1)
    assert low > 0
    assert high == np.inf
    assert fitted.difference(1, 0) == (-np.inf, -low)


def test_intervals_cover_the_true_strengths() -> None:
    """Of 60 data sets nearly all intervals hold the truth, and not all of them."""
    strengths = np.array([0.5, 0.0, -0.5])
    truth, hits = MEAN + SCALE * strengths, []
    for seed in range(60):
        fitted = rate(votes_of(drawn_without_ties(strengths, 120, seed), 3), num_resamples=200, seed=seed)
        hits += list((fitted.low <= truth) & (truth <= fitted.high))
    assert 0.89 <= np.mean(hits) <= 0.99


def drawn_without_ties(strengths: np.ndarray, number: int, seed: int) -> list[tuple[int, int, float]]:
    random, rows = np.random.default_rng(seed), []
    for _ in range(number):
        first, second = (int(one) for one in random.choice(len(strengths), 2, replace=False))
        rows.append((first, second, float(random.random() < 1 / (1 + np.exp(strengths[second] - strengths[first])))))
    return rows


def test_votes_on_one_prompt_are_drawn_together() -> None:
    """Ten votes that are one vote ten times have the interval of the few that they are."""
    rows = [(0, 1, 1.0), (0, 1, 1.0), (0, 1, 0.0)] * 20
    apart = rate(votes_of(rows, 2))
    together = rate(votes_of(rows, 2, [place // 15 for place in range(60)]))
    repeated = [(0, 1, 1.0)] * 30 + [(0, 1, 0.0)] * 15 + [(0, 1, 1.0)] * 15
    clustered = rate(votes_of(repeated, 2, [place // 5 for place in range(60)]))
    assert together.ratings == pytest.approx(apart.ratings)
    assert clustered.high[0] - clustered.low[0] > 1.5 * (apart.high[0] - apart.low[0])
