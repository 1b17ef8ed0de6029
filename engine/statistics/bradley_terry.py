"""Bradley-Terry ratings of players by pairwise votes, with intervals by resampling.

The strength of player i is θ_i, and P(i beats j) = 1 / (1 + exp(θ_j - θ_i)) (Bradley and Terry 1952). A tie is half a
win of both, as in FastChat. The likelihood has a maximum only if every player has won against every other, at least
through others (Ford 1957); where it has none, a rating is not bounded, and nothing is made up for it.

Shapes: P players, R resamples, C clusters of votes (those of one comparison belong together).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

SCALE = 400 / np.log(10)  # Elo's: 400 points are odds of 10
MEAN = 1000.0
NUM_RESAMPLES = 1000
_CHUNK = 100  # resamples in memory at a time
_MAX_STEPS = 100
_LARGEST_STEP = 2.0  # of one Newton step, which could overshoot where the likelihood is flat
_TOLERANCE = 1e-10
_FLAT = 1e-9  # keeps a step finite where the curvature vanishes; the maximum stays where it is


@dataclass(frozen=True)
class Votes:
    """Votes on pairs of players. Each array has one entry for each vote."""

    clusters: Ints  # numbers from 0
    first: Ints  # players
    second: Ints
    shares: Floats  # of the first: 1 for a win, 0 for a loss, 0.5 for a tie
    num_players: int

    def wins(self) -> Floats:
        """The wins (P, P) of each player over each."""
        total = np.asarray(self.by_cluster().sum(0), np.float64)
        return np.reshape(total, (self.num_players, self.num_players))

    def by_cluster(self) -> csr_array:
        """The wins (C, P x P) in each cluster."""
        rows, ones = np.concatenate([self.clusters] * 2), np.concatenate([self.shares, 1 - self.shares])
        pairs = [self.first * self.num_players + self.second, self.second * self.num_players + self.first]
        shape = (int(self.clusters.max(initial=-1)) + 1, self.num_players**2)
        return csr_array((ones, (rows, np.concatenate(pairs))), shape=shape)


@dataclass(frozen=True)
class Ratings:
    """Ratings on Elo's scale; their mean is 1,000. A bound that the votes do not give is infinite."""

    ratings: Floats  # (P,)
    low: Floats  # (P,) 2.5th percentile
    high: Floats  # (P,) 97.5th percentile
    low_samples: Floats  # (R, P)
    high_samples: Floats  # (R, P)

    def difference(self, first: int, second: int) -> tuple[float, float]:
        """The 95 % interval of one player's rating minus another's."""
        low = _difference(self.low_samples[:, first], self.high_samples[:, second], -np.inf)
        high = _difference(self.high_samples[:, first], self.low_samples[:, second], np.inf)
        return float(_low(low)), float(_high(high))


def connected_groups(wins_PP: Floats) -> Ints:
    """The number of each player's group: within one, each has won against each, at least through others."""
    reach = _reach(wins_PP[None])[0]
    mutual = reach & reach.T
    groups: Ints = np.unique(mutual, axis=0, return_inverse=True)[1].reshape(-1)
    return groups


def rate(votes: Votes, num_resamples: int = NUM_RESAMPLES, seed: int = 0) -> Ratings:
    """The ratings of players by their votes. All must be in one group of `connected_groups`.

    The intervals are percentiles over resampled clusters. Of C clusters C - 1 are drawn: with C, the interval of a mean
    is too narrow (Rao and Wu 1988).
    """
    num_players, wins = votes.num_players, votes.by_cluster()
    num_clusters, random = wins.shape[0], np.random.default_rng(seed)
    lows, highs = [], []
    for start in range(0, num_resamples, _CHUNK):
        size = min(_CHUNK, num_resamples - start)
        counts = random.multinomial(max(1, num_clusters - 1), np.full(num_clusters, 1 / num_clusters), size)
        low, high = _resample((wins.T @ counts.T).T.reshape(size, num_players, num_players))
        lows.append(low)
        highs.append(high)
    low_samples, high_samples = np.concatenate(lows), np.concatenate(highs)
    return Ratings(
        _elo(fit(votes.wins()[None])[0]),
        _low(low_samples),
        _high(high_samples),
        low_samples,
        high_samples,
    )


def fit(wins_RPP: Floats) -> Floats:
    """Strengths (R, P) of the greatest likelihood, by Newton's method; their mean is 0."""
    games = wins_RPP + wins_RPP.transpose(0, 2, 1)
    num_resamples, num_players, _ = wins_RPP.shape
    strengths: Floats = np.zeros((num_resamples, num_players))
    for _ in range(_MAX_STEPS):
        expected = 1 / (1 + np.exp(strengths[:, None, :] - strengths[:, :, None]))
        gradient = (wins_RPP - games * expected).sum(2)
        curvature = games * expected * (1 - expected)
        hessian = -curvature + 1 / num_players  # plus a constant: the strengths' mean is free
        hessian[:, range(num_players), range(num_players)] += curvature.sum(2) + _FLAT
        step = np.linalg.solve(hessian, gradient[..., None])[..., 0]
        strengths += np.clip(step, -_LARGEST_STEP, _LARGEST_STEP)
        if np.abs(step).max(initial=0.0) < _TOLERANCE:
            break
    centred: Floats = strengths - strengths.mean(1, keepdims=True)
    return centred


def _resample(wins_RPP: Floats) -> tuple[Floats, Floats]:
    """The ratings of each resample, as low and as high as its votes allow."""
    reach = _reach(wins_RPP)
    bounded = np.asarray(reach.all((1, 2)))
    low = np.full(wins_RPP.shape[:2], -np.inf)
    high = np.full(wins_RPP.shape[:2], np.inf)
    if bounded.any():
        low[bounded] = high[bounded] = _elo(fit(wins_RPP[bounded]))
    one_sided: Bools = reach & ~reach.transpose(0, 2, 1)
    below, above = np.asarray(one_sided.any(2)), np.asarray(one_sided.any(1))
    low[~bounded[:, None] & below & ~above] = np.inf  # won all that was decided against others
    high[~bounded[:, None] & above & ~below] = -np.inf
    return low, high


def _reach(wins_RPP: Floats) -> Bools:
    """Which player has won against which, at least through others."""
    reach: Bools = np.asarray(wins_RPP > 0) | np.eye(wins_RPP.shape[1], dtype=np.bool_)
    for _ in range(max(1, int(np.ceil(np.log2(max(2, wins_RPP.shape[1])))))):
        reach = (reach.astype(np.float32) @ reach.astype(np.float32)) > 0
    return reach


def _elo(strengths: Floats) -> Floats:
    ratings: Floats = MEAN + SCALE * strengths
    return ratings


def _difference(first: Floats, second: Floats, unknown: float) -> Floats:
    """The differences; of two equal infinities nothing is known."""
    same = np.isinf(first) & (first == second)
    with np.errstate(invalid="ignore"):
        return np.where(same, unknown, first - second)


# The 2.5th and the 97.5th percentile, each one of the samples: between a number and infinity nothing is interpolated.
_low = partial(np.percentile, q=2.5, axis=0, method="lower")
_high = partial(np.percentile, q=97.5, axis=0, method="higher")
