"""Which model has more accuracy than which other, averaged over domains; the unit is percentage points."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from engine.statistics.bootstrap import Averages
from workbench_studies.core.verdicts import (
    NEAR_CHANCE,
    Claim,
    Verdict,
    is_above,
    is_within,
    on_the_floor,
    untestable,
)
from workbench_studies.mode.evidence import ModeEvidence
from workbench_studies.mode.names import BACKBONE, Arm, trained_on

COMPARABLE = 0.5  # percentage points: what is “comparable” falls by less than this
POINTS = "percentage points"
_ROUNDING = 1e-9  # between means of the same accuracies over different numbers of seeds
# topics of claims
LORA_RANK = "rank of LoRA"
EXPERT_SIZE = "size of the expert"
LEARNING_RATE = "learning rate"
Key = TypeVar("Key")


def has_more(evidence: ModeEvidence, claim: Claim, arm: Arm, other: Arm, domains: Sequence[str]) -> Verdict:
    """One model has more accuracy than another."""
    verdict = is_above(
        claim, evidence.lead(arm, other, domains), ours=_both(evidence, arm, other, domains), unit=POINTS
    )
    return on_the_floor(verdict, floor(evidence, [arm, other], domains))


def is_comparable(evidence: ModeEvidence, claim: Claim, arm: Arm, other: Arm, domains: Sequence[str]) -> Verdict:
    """A model has at most COMPARABLE less than another."""
    ours = _both(evidence, arm, other, domains)
    verdict = is_above(claim, evidence.lead(arm, other, domains), -COMPARABLE, ours=ours, unit=POINTS)
    return on_the_floor(verdict, floor(evidence, [arm, other], domains))


def is_alike(evidence: ModeEvidence, claim: Claim, arm: Arm, other: Arm, domains: Sequence[str]) -> Verdict:
    """Two models differ by less than COMPARABLE, whichever way."""
    ours = _both(evidence, arm, other, domains)
    verdict = is_within(claim, evidence.lead(arm, other, domains), COMPARABLE, ours=ours, unit=POINTS)
    return on_the_floor(verdict, floor(evidence, [arm, other], domains))


def best_has_more(
    evidence: ModeEvidence,
    claim: Claim,
    better: Mapping[Key, Arm],
    others: Mapping[Key, Arm],
    domains: Sequence[str],
    words: Callable[[Key], object] = str,
) -> Verdict:
    """The best of some models has more accuracy than the best of others.

    Which are best is chosen on one half of the documents and judged on the other: where it is chosen it looks best by
    chance, too.
    """
    choosing, judging = (evidence.accuracies.half(which) for which in range(2))
    if not choosing.seeds_with([*better.values(), *others.values()], domains):
        return untestable(claim)
    chosen = [_best(choosing, arms, domains) for arms in (better, others)]
    result = judging.estimate([better[chosen[0]], others[chosen[1]]], domains, lambda one, two: 100 * (one - two))
    ours = f"{words(chosen[0])} and {words(chosen[1])}, chosen on one half of the documents and judged on the other"
    compared = [better[chosen[0]], others[chosen[1]]]
    return on_the_floor(is_above(claim, result, ours=ours, unit=POINTS), floor(evidence, compared, domains))


def floor(evidence: ModeEvidence, compared: Sequence[Arm], domains: Sequence[str]) -> str:
    """Why a comparison of these arms would be no result; empty where it is one.

    An arm is no better than untrained if it did not end above the untouched backbone on what it was trained on.
    Accuracies near that of a guess among all tokens say nothing if that of every arm is.
    """
    accuracies = evidence.accuracies
    if untrained := next(filter(None, (_as_untrained(evidence, arm) for arm in compared)), ""):
        return untrained
    values = [100 * one for arm in compared if (one := accuracies.value(arm, domains)) is not None]
    chance = 100 / evidence.subject.size.vocab_size
    if values and max(values) <= chance + NEAR_CHANCE:
        listed = " and ".join(f"{one:.1f}" for one in values)
        return f"{listed} % are within {NEAR_CHANCE:g} points of a guess among all tokens ({chance:.2f} %)."
    return ""


def _as_untrained(evidence: ModeEvidence, arm: Arm) -> str:
    """That an arm is not above the untouched backbone on what it was trained on; empty if it is, or is not known.

    Early stopping restores the best weights, which may be those of the start: such an arm is the backbone itself.
    """
    trained = trained_on(arm, evidence.subject.targets)
    own, untouched = (evidence.accuracies.value(one, trained) for one in (arm, BACKBONE))
    if own is None or untouched is None or own > untouched + _ROUNDING:
        return ""
    words = (
        "did not leave the untouched backbone" if own >= untouched - _ROUNDING else "ended below the untouched backbone"
    )
    return f"{arm} {words} on {' and '.join(trained)} ({100 * own:.2f} against {100 * untouched:.2f} %)."


def _best(accuracies: Averages, arms: Mapping[Key, Arm], domains: Sequence[str]) -> Key:
    """The one with the highest average over the seeds that all of them have."""
    every = list(arms.values())
    averages = {key: accuracies.estimate(every, domains, lambda *each, n=n: each[n]) for n, key in enumerate(arms)}
    values = {key: average.value for key, average in averages.items() if average is not None}
    return max(values, key=lambda key: values[key])


def _both(evidence: ModeEvidence, arm: Arm, other: Arm, domains: Sequence[str]) -> str:
    """The two averages over the seeds that have both; empty without scores."""
    pair = (arm, other)
    own = [evidence.accuracies.estimate(pair, domains, lambda *both, n=n: 100 * both[n]) for n in range(2)]
    return " against ".join(f"{one.value:.2f}" for one in own if one)
