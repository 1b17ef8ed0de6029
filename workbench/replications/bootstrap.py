"""Intervals of averaged perplexities: a paired bootstrap over text and seeds.

A draw takes stretches of neighbouring test blocks with replacement, within each domain and the same for every system
and seed, and then seeds with replacement. Of each draw perplexities are computed per domain, averaged over domains as
the paper averages, then over the seeds drawn. A stretch is about 1,000 tokens, since neighbouring blocks belong to
one document; a text with fewer than ten stretches is drawn in shorter ones. The interval is the middle 95 % of draws.

Two seeds tell little of how seeds differ, so a claim must also hold in each seed by itself (`verdicts.py`).
Shapes: N blocks, G stretches, R draws.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

STRETCH_TOKENS = 1024
LEAST_STRETCHES = 10
NUM_DRAWS = 2000
LEVEL = 0.95
_MOST_NATS = 700.0  # per token: its exponential is still a number that JSON can hold

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Loss:
    """A system's negative log-likelihood of a text: nats and tokens of each block."""

    nats_N: Floats
    tokens_N: Floats

    @property
    def perplexity(self) -> float:
        return float(_perplexity(self.nats_N.sum() / self.tokens_N.sum()))


@dataclass(frozen=True)
class Estimate:
    """A number with its interval, and its value in each seed."""

    value: float
    low: float
    high: float
    by_seed: tuple[float, ...]


class Step(NamedTuple):
    """From one system to another, on one domain."""

    after: str
    before: str
    domain: str


Place = tuple[str, int, str]  # system, seed, domain
Statistic = Callable[..., Floats]


class Resampled:
    """Losses of systems by (system, seed, domain), and what they give under the same draws of text."""

    def __init__(self, losses: Mapping[Place, Loss], num_draws: int = NUM_DRAWS, seed: int = 0) -> None:
        self.losses = losses
        self.seeds = sorted({seed for _, seed, _ in losses})
        self._num_draws, self._seed = num_draws, seed
        self._drawn: dict[Place, Floats] = {}
        self._counts: dict[tuple[str, int], Floats] = {}

    def seeds_with(self, systems: Sequence[str], domains: Sequence[str]) -> list[int]:
        """The seeds in which every one of these systems was scored on every one of these domains."""
        return [s for s in self.seeds if all((m, s, d) in self.losses for m in systems for d in domains)]

    def estimate(self, systems: Sequence[str], domains: Sequence[str], statistic: Statistic) -> Estimate | None:
        """A statistic of the systems' average perplexities, averaged over seeds; None where no seed has them all.

        `statistic` is given one array for each system, one number for each draw.
        """
        seeds = self.seeds_with(systems, domains)
        if not seeds or not domains:
            return None
        points = [float(statistic(*(np.array(self._mean(m, s, domains)) for m in systems))) for s in seeds]
        draws_SR = np.stack([statistic(*(self._mean_drawn(m, s, domains) for m in systems)) for s in seeds])
        low, high = interval((self._seed_shares(len(seeds)) * draws_SR).sum(0))
        return Estimate(float(np.mean(points)), low, high, tuple(points))

    def average(self, system: str, domains: Sequence[str]) -> Estimate | None:
        """A system's perplexity, averaged over domains and seeds."""
        return self.estimate([system], domains, lambda own: own)

    def difference(self, system: str, other: str, domains: Sequence[str]) -> Estimate | None:
        """How much more perplexity a system has than another (less: negative)."""
        return self.estimate([system, other], domains, lambda one, two: one - two)

    def changes(self, steps: Sequence[Step]) -> Estimate | None:
        """The mean change of perplexity over several steps, in %, as in table 13.

        Each step counts the same, however large its perplexity. None where no seed has all of them.
        """
        seeds = [s for s in self.seeds if all((m, s, step.domain) in self.losses for step in steps for m in step[:2])]
        if not seeds or not steps:
            return None
        points = [float(np.mean([self._point_change(step, s) for step in steps])) for s in seeds]
        draws_SR = np.stack([np.mean([self._drawn_change(step, s) for step in steps], axis=0) for s in seeds])
        low, high = interval((self._seed_shares(len(seeds)) * draws_SR).sum(0))
        return Estimate(float(np.mean(points)), low, high, tuple(points))

    def _point_change(self, step: Step, seed: int) -> float:
        after, before = (self.losses[m, seed, step.domain].perplexity for m in step[:2])
        return 100 * (after / before - 1)

    def _drawn_change(self, step: Step, seed: int) -> Floats:
        after_R, before_R = (self._drawn_at(m, seed, step.domain) for m in step[:2])
        return 100 * (after_R / before_R - 1)

    def _mean(self, system: str, seed: int, domains: Sequence[str]) -> float:
        return float(np.mean([self.losses[system, seed, domain].perplexity for domain in domains]))

    def _mean_drawn(self, system: str, seed: int, domains: Sequence[str]) -> Floats:
        return np.asarray(np.mean([self._drawn_at(system, seed, domain) for domain in domains], axis=0))

    def _drawn_at(self, system: str, seed: int, domain: str) -> Floats:
        """Perplexity under every draw of the domain's text [R]."""
        place = (system, seed, domain)
        if place not in self._drawn:
            loss = self.losses[place]
            nats_G, tokens_G = (stretches(one, loss.tokens_N) for one in (loss.nats_N, loss.tokens_N))
            counts_RG = self._draws(domain, len(nats_G))
            self._drawn[place] = _perplexity((counts_RG @ nats_G) / (counts_RG @ tokens_G))
        return self._drawn[place]

    def _draws(self, domain: str, num_stretches: int) -> Floats:
        """How often each stretch of a domain is drawn [R, G]: the same for all systems and seeds."""
        key = (domain, num_stretches)
        if key not in self._counts:
            chance = np.random.default_rng([self._seed, zlib.crc32(domain.encode()), num_stretches])
            drawn = chance.multinomial(num_stretches, np.full(num_stretches, 1 / num_stretches), self._num_draws)
            self._counts[key] = drawn.astype(np.float64)
        return self._counts[key]

    def _seed_shares(self, num_seeds: int) -> Floats:
        """The share of each seed in every draw [S, R]."""
        chance = np.random.default_rng([self._seed, num_seeds])
        drawn = chance.multinomial(num_seeds, np.full(num_seeds, 1 / num_seeds), self._num_draws)
        return drawn.T / num_seeds


def _perplexity(nats_per_token: Floats) -> Floats:
    return np.asarray(np.exp(np.minimum(nats_per_token, _MOST_NATS)))


def interval(draws_R: Floats) -> tuple[float, float]:
    """The middle 95 % of draws."""
    tail = 50 * (1 - LEVEL)
    low, high = np.percentile(draws_R, [tail, 100 - tail])
    return float(low), float(high)


def stretches(values_N: Floats, tokens_N: Floats) -> Floats:
    """Sums over stretches of neighbouring blocks, about STRETCH_TOKENS each, at least LEAST_STRETCHES of them."""
    num_blocks = len(values_N)
    longest = max(1, num_blocks // LEAST_STRETCHES)
    size = min(longest, max(1, round(STRETCH_TOKENS / tokens_N.max())))
    return np.add.reduceat(values_N, np.arange(0, num_blocks, size))


def mean_interval(values_DN: Sequence[Floats], seed: int = 0, num_draws: int = NUM_DRAWS) -> tuple[float, float]:
    """The interval of a mean over several series, each drawn anew from its own values."""
    chance = np.random.default_rng(seed)
    drawn = [values_N[chance.integers(0, len(values_N), (num_draws, len(values_N)))].mean(1) for values_N in values_DN]
    return interval(np.mean(drawn, axis=0))
