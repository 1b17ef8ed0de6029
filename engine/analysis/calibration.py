"""Fits the evidence of a posterior, its decay and its power, on dev text of training domains. Not in the papers.

The paper's evidence (`prefix`) is sure of one expert after a few tokens, which is right for a text like those an expert
was trained on and wrong for any other. How much evidence should count is read from text that no expert was trained on:
each training domain's dev text is mixed once with all experts (*present*) and once without the experts that were
trained on that domain (*left out*), as if the domain were novel. The setting with the lowest mean of both is chosen:
with all experts only, sharp evidence always wins, and says nothing of novel text.

Slow evidence is added where one decay is not enough: what the last few tokens say and what the text as a whole says
count differently. The gain is cross-fitted: of each domain it is that of the setting chosen on the other domains.
Nothing here reads novel or test text; whoever calls gives only dev text of training domains.
Shapes: E experts, N blocks, T positions, X tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.errors import MixtureError
from engine.inference.scores import as_blocks
from engine.mixing.base import Gate
from engine.mixing.evidence import READINGS, EvidenceRule
from engine.mixing.posterior import PosteriorGate
from engine.statistics.estimates import Draws, Estimate, Loss, Variance, text_freedom
from engine.text.blocks import evenly_spaced

if TYPE_CHECKING:
    from engine.clusters.distances import Distances

DECAYS = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 1.0)
POWERS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)  # no sharper than Bayes' rule
MOST_TOKENS = 8_192  # of each text: more would only make the answer slower
_LEAST_BLOCKS = 16  # of each text, however long they are
_FEWEST_BLOCKS = 2  # of each text, for an interval
_CLOSE = 5e-4  # nats per token: settings as near as this to the best are as good
_WORTH = 2e-3  # nats per token that slow evidence must gain, or there is none
_ROUNDS = 2  # of refinement around the best setting
_MOST_STEPS = 6  # of one size
_LEAST_SLOW = 0.9  # decay of slow evidence
_STEP = 1.5  # of a refinement of slow evidence: the factor of each of its numbers
# Where the search with slow evidence starts. What counts of it is power / (1 − decay), the power times the tokens it
# remembers.
_FAST = tuple((decay, power) for decay in (0.0, 0.5, 0.8) for power in (0.3, 0.6))
_SLOW = tuple((decay, times * (1 - decay)) for decay in (0.95, 0.98, 0.995) for times in (2, 4, 8))

View = Literal["present", "left out"]
_Change = tuple[float, NDArray[np.float64]]  # of a perplexity in %, and that under every draw of documents [R]
GateOf = Callable[[EvidenceRule, Sequence[int]], Gate]  # of the experts in these rows


@dataclass(frozen=True)
class DevText:
    """Scores [E, X] of the dev text of one training domain, and the rows of the experts trained on it."""

    domain: str
    scores_EX: Tensor
    block_size: int
    documents_N: NDArray[np.integer]
    own: frozenset[int]
    distances: Distances | None = None
    counted_X: Tensor | None = None

    def thin(self, most_tokens: int = MOST_TOKENS) -> DevText:
        """The same text, or of a longer one full blocks that are evenly spread over it."""
        size, total = self.block_size, self.scores_EX.shape[1]
        if total <= most_tokens or total < size:
            return self
        kept_N = evenly_spaced(total // size, max(_LEAST_BLOCKS, most_tokens // size))
        kept_X = (torch.from_numpy(kept_N)[:, None] * size + torch.arange(size)).flatten()
        far = self.distances
        return replace(
            self,
            scores_EX=self.scores_EX[:, kept_X],
            documents_N=self.documents_N[kept_N],
            counted_X=None if self.counted_X is None else self.counted_X[kept_X],
            distances=far
            and replace(
                far,
                further_KX=far.further_KX[:, kept_X],
                nearest_X=far.nearest_X[kept_X],
                known_X=far.known_X[kept_X],
            ),
        )

    def views(self) -> list[View]:
        """Both views; only the first where a text has fewer than two experts besides its own."""
        return ["present", "left out"] if len(self.rows("left out")) > 1 else ["present"]

    def rows(self, view: View) -> list[int]:
        """The experts that take part."""
        return [row for row in range(len(self.scores_EX)) if view == "present" or row not in self.own]

    def loss(self, gate: Gate, rows: Sequence[int]) -> Loss:
        """The mixture's loss of each block, of the tokens that count."""
        blocks_ENT = as_blocks(self.scores_EX[list(rows)], self.block_size)
        logprobs_X = gate.mixed(blocks_ENT, self.distances).flatten()[: self.scores_EX.shape[1]].numpy()
        counts_X = np.ones(len(logprobs_X)) if self.counted_X is None else self.counted_X.numpy().astype(float)
        starts = np.arange(0, len(logprobs_X), self.block_size)
        nats_N, tokens_N = (np.add.reduceat(one_X, starts) for one_X in (-logprobs_X * counts_X, counts_X))
        return Loss(nats_N, tokens_N, self.documents_N)


@dataclass(frozen=True)
class Calibration:
    """The proposed setting and that of now, the surface that it is the lowest point of, and what it gains."""

    now: EvidenceRule
    best: EvidenceRule
    keeps: bool  # the setting of now: it is as good, a gain of 0 lies within the interval, or there is no interval
    decays: tuple[float, ...]
    powers: tuple[float, ...]
    change_DP: list[list[float]]  # of perplexity against now, in %, by decay and power: the mean of both views
    gain: Estimate  # change of perplexity by a cross-fitted choice, in % (a gain is negative), of both views
    by_view: Mapping[View, Estimate]  # the same of each view; without "left out" where no domain has it
    too_short: tuple[str, ...] = ()  # domains of a single block, which shows no variance: the intervals mean nothing


def calibrate(texts: Sequence[DevText], gate_of: GateOf, now: EvidenceRule) -> Calibration:
    """The decay and the power with the lowest mean loss over texts and views, and what they gain.

    Of settings that are as good the one nearest to the paper's is chosen. Raises MixtureError for a single expert, and
    for less than two texts: the gain on one is that of a choice made on the others.
    """
    if len(texts) < 2 or len(texts[0].scores_EX) < 2:
        raise MixtureError(
            "Calibrating needs at least two experts, and dev scores of at least two domains that trained them.",
            "Score the dev text of more of its training domains, or switch on another expert.",
        )
    surface = _Surface([text.thin() for text in texts], gate_of)
    grid = [EvidenceRule(decay, power) for decay in DECAYS for power in POWERS]
    surface.measure([now, *grid])
    for _ in range(_ROUNDS):
        surface.measure(surface.around(surface.lowest_with(slow=False)))
    if any(len(text.views()) > 1 for text in texts):  # more to fit needs text that stands for novel text
        surface.measure([EvidenceRule(*fast, slow[0], round(slow[1], 4)) for fast in _FAST for slow in _SLOW])
        surface.descend()
    best = surface.lowest()
    is_close = surface.mean(now) <= surface.mean(best) + _CLOSE
    gain, by_view = _gains(surface, now)
    change_DP = [[surface.change(EvidenceRule(decay, power), now) for power in POWERS] for decay in DECAYS]
    too_short = tuple(text.domain for text in texts if len(text.documents_N) < _FEWEST_BLOCKS)
    keeps = is_close or gain.high >= 0 or bool(too_short)
    return Calibration(now, best, keeps, DECAYS, POWERS, change_DP, gain, by_view, too_short)


def calibrate_from_equal_priors(texts: Sequence[DevText]) -> Calibration:
    """The same for a posterior from equal priors, against the paper's reading: of experts without a stored mixture."""
    return calibrate(texts, lambda rule, rows: PosteriorGate([1.0] * len(rows), rule), READINGS["prefix"])


class _Surface:
    """Mean losses (nats per token) of settings, on every text in every view."""

    def __init__(self, texts: Sequence[DevText], gate_of: GateOf) -> None:
        self.texts, self._gate_of = texts, gate_of
        self._nats: dict[EvidenceRule, list[list[float]]] = {}  # by text, by view

    def loss(self, text: DevText, view: View, rule: EvidenceRule) -> Loss:
        rows = text.rows(view)
        return text.loss(self._gate_of(rule, rows), rows)

    def measure(self, rules: Sequence[EvidenceRule]) -> None:
        """Measures what is not measured yet. Without power decays are all alike."""
        for rule in rules:
            same = _canonical(rule)
            if same not in self._nats:
                losses = [[self.loss(text, view, same) for view in text.views()] for text in self.texts]
                self._nats[same] = [[float(one.totals_N.sum() / one.tokens_N.sum()) for one in row] for row in losses]

    def mean(self, rule: EvidenceRule, without: DevText | None = None) -> float:
        """The mean loss over texts, of each over its views."""
        pairs = zip(self.texts, self._nats[_canonical(rule)], strict=True)
        return float(np.mean([np.mean(row) for text, row in pairs if text is not without]))

    def change(self, rule: EvidenceRule, now: EvidenceRule) -> float:
        """The change of perplexity against `now` in %, the mean over texts and views."""
        pairs = zip(self._nats[_canonical(rule)], self._nats[_canonical(now)], strict=True)
        return float(np.mean([np.mean(100 * np.expm1(np.subtract(new, old))) for new, old in pairs]))

    def lowest_with(self, *, slow: bool) -> EvidenceRule:
        """The best setting with or without slow evidence."""
        return min((rule for rule in self._nats if bool(rule.slow_power) == slow), key=self.mean)

    def descend(self) -> None:
        """Measures around the best setting with slow evidence, by ever smaller steps."""
        for factor in (_STEP, math.sqrt(_STEP)):
            for _ in range(_MOST_STEPS):
                before = self.lowest_with(slow=True)
                self.measure(_steps(before, factor))
                if self.mean(self.lowest_with(slow=True)) > self.mean(before) - _CLOSE:
                    break

    def lowest(self, without: DevText | None = None) -> EvidenceRule:
        """The best setting; of those as good the one nearest to the paper's, by its power, then by its decay.

        It has slow evidence only where that is worth it.
        """
        means = {rule: self.mean(rule, without) for rule in self._nats}
        plain = {rule: mean for rule, mean in means.items() if not rule.slow_power}
        if min(plain.values()) <= min(means.values()) + _WORTH:
            means = plain
        least = min(means.values())
        good = [rule for rule, mean in means.items() if mean <= least + _CLOSE]
        return min(good, key=lambda rule: (abs(np.log(max(rule.power, 1e-3))), 1 - rule.decay))

    def around(self, rule: EvidenceRule) -> list[EvidenceRule]:
        """The settings half way to the measured neighbours of a setting."""
        plain = [one for one in self._nats if not one.slow_power]
        decays = _between(sorted({1 - one.decay for one in plain}), 1 - rule.decay)
        powers = _between(sorted({one.power for one in plain}), rule.power)
        return [EvidenceRule(round(1 - forgotten, 4), power) for forgotten in decays for power in powers]


def _canonical(rule: EvidenceRule) -> EvidenceRule:
    return rule if rule.power or rule.slow_power else EvidenceRule(1.0, 0.0)


def _steps(rule: EvidenceRule, factor: float) -> list[EvidenceRule]:
    """The settings one step away in each number of a setting with slow evidence, up and down, powers at most 1."""
    changed = []
    for ratio in (factor, 1 / factor):
        decay, slow_decay = 1 - (1 - rule.decay) * ratio, max(_LEAST_SLOW, 1 - (1 - rule.slow_decay) * ratio)
        power, slow_power = (round(min(value * ratio, 1.0), 4) for value in (rule.power, rule.slow_power))
        changed += [
            replace(rule, decay=round(max(0.0, decay), 4)),
            replace(rule, power=power),
            replace(rule, slow_power=slow_power),
            replace(rule, slow_decay=round(slow_decay, 5), slow_power=slow_power),  # as many tokens' worth as before
        ]
    return changed


def _between(values: Sequence[float], value: float) -> list[float]:
    """A value of a sorted list, and the geometric means with its neighbours; next to 0, half of the upper one."""
    index = values.index(value)
    pairs = [(values[low], values[low + 1]) for low in (index - 1, index) if 0 <= low < len(values) - 1]
    return [value, *(round(math.sqrt(low * high) or high / 2, 4) for low, high in pairs)]


def _gains(surface: _Surface, now: EvidenceRule) -> tuple[Estimate, dict[View, Estimate]]:
    """The change of perplexity in %, of each text by the setting that is best on the others."""
    draws, changes = Draws(), []
    for text in surface.texts:
        rules = surface.lowest(without=text), now
        by_view = {view: [surface.loss(text, view, rule) for rule in rules] for view in text.views()}
        changes.append({view: _change(draws, text, *losses) for view, losses in by_view.items()})

    def estimate(of_texts: Sequence[tuple[DevText, _Change]]) -> Estimate:
        point, drawn_R = _mean([change for _, change in of_texts])
        parts = [Variance(float(np.var(drawn)), text_freedom([text.documents_N])) for text, (_, drawn) in of_texts]
        return draws.estimate([point], [drawn_R], parts)

    views = dict.fromkeys(view for one in changes for view in one)
    by_text = list(zip(surface.texts, changes, strict=True))
    return (
        estimate([(text, _mean(list(one.values()))) for text, one in by_text]),
        {view: estimate([(text, one[view]) for text, one in by_text if view in one]) for view in views},
    )


def _change(draws: Draws, text: DevText, after: Loss, before: Loss) -> _Change:
    point = math.expm1((after.totals_N.sum() - before.totals_N.sum()) / after.tokens_N.sum())
    after_R, before_R, tokens_R = draws.sums(
        text.domain, text.documents_N, after.totals_N, before.totals_N, after.tokens_N
    )
    return 100 * point, 100 * np.expm1((after_R - before_R) / np.maximum(tokens_R, 1))


def _mean(changes: Sequence[_Change]) -> _Change:
    points, drawn = zip(*changes, strict=True)
    return float(np.mean(points)), np.mean(drawn, axis=0)
