"""How MoDE's claims are judged: which model has more accuracy than which other; the unit is percentage points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workbench_studies.core.averages import Averages
from workbench_studies.core.study import Case, Options, Test, read_study
from workbench_studies.core.verdicts import (
    NEAR_CHANCE,
    Claim,
    Verdict,
    is_above,
    is_within,
    on_the_floor,
    untestable,
)
from workbench_studies.mode import arms
from workbench_studies.mode.measurements import ModeMeasurements
from workbench_studies.mode.names import BACKBONE, Arm, trained_on
from workbench_studies.mode.tables import TABLE_3

STUDY = read_study(__file__)
_ROUNDING = 1e-9  # between means of the same accuracies over different numbers of seeds
_POINTS = "percentage points"
ModeCase = Case[ModeMeasurements]


def judge(measured: ModeMeasurements) -> list[Verdict]:
    """Every claim of the paper."""
    return [*STUDY.judge(TESTS, _cases(measured)), *STUDY.untestable()]


# what the names in claims stand for ---------------------------------------------------------------


def _cases(measured: ModeMeasurements) -> Mapping[str, list[ModeCase]]:
    subject, size = measured.subject, measured.subject.budget
    by_rank, cells = arms.by_rank(size), arms.by_shape(size)
    texts = {
        "first": subject.targets[:1],
        "second": subject.targets[1:],
        "retention": (subject.retention,),
        "average": subject.judged,
    }
    systems = _named_arms(measured)
    words: dict[str, object] = {name: str(arm) for name, arm in systems.items() if isinstance(arm, Arm)}
    words |= {
        "first": subject.targets[0],
        "second": subject.targets[1],
        "retention": subject.retention,
        "rank": size.lora.rank,
        "longer": size.longer,
        "start": "copied" if size.mode.init == "copy" else "fresh",
        "rates": ", ".join(systems["rates of one"]),
        "largest_rank": _stand_ins((16, 2048), (size.lora.rank, max(by_rank))),
        "least_rank": _stand_ins((8, 16), (min(by_rank), size.lora.rank)),
        "fewest": size.sequences[0],
        "before": size.sequences[-1],
        "fewest_mixed": size.mixed_sequences[0],
    }
    main = ModeCase(measured, systems, texts, words)
    own = (size.mode.num_blocks, size.mode.expert_layers)
    pairs = [((blocks, 2 * layers), (blocks, layers)) for blocks, layers in cells]
    pairs.append(((2 * own[0], own[1] // 2), own))  # as many layers in more blocks
    shapes = [_of_shapes(main, cells, more, less) for more, less in pairs if more in cells]
    return {"": [main], "lower rank": [main] if min(by_rank) < size.lora.rank else [], "shape": shapes}


def _named_arms(measured: ModeMeasurements) -> dict[str, Any]:
    """Arms by their names in claims, and those of which the best one is compared."""
    size = measured.subject.budget
    by_rank, by_layers, cells = arms.by_rank(size), arms.by_layers(size), arms.by_shape(size)
    amounts = {"fewest": size.sequences[0], "before": size.sequences[-1], "all": None}
    return {
        **arms.table_1(size),
        **{f"longer {row}": arm for row, arm in arms.longer(size).items()},
        "own rank": by_rank[size.lora.rank],
        "largest rank": by_rank[max(by_rank)],
        "least rank": by_rank[min(by_rank)],
        **arms.in_more_layers(size),
        "largest": cells[max(cells, key=lambda cell: cell[0] * cell[1])],
        "smallest": cells[min(cells, key=lambda cell: cell[0] * cell[1])],
        "most layers": by_layers[max(by_layers)],
        "least layers": by_layers[min(by_layers)],
        **{f"{name} {method}": of[n] for method, of in arms.by_sequences(size).items() for name, n in amounts.items()},
        **{f"fewest mixed {row}": of[size.mixed_sequences[0]] for row, of in arms.by_mixture(size).items()},
        **{f"rates of {row}": {f"{rate:g}": arm for rate, arm in of.items()} for row, of in arms.by_rate(size).items()},
        "layers": {str(arm): arm for arm in by_layers.values()},
        "ranks": {str(arm): arm for arm in by_rank.values()},
    }


def _of_shapes(main: ModeCase, cells: Mapping[arms.Cell, Arm], more: arms.Cell, less: arms.Cell) -> ModeCase:
    """Two shapes of an expert, with the paper's numbers if it has both."""
    printed = [TABLE_3.get(cell) for cell in (more, less)]
    numbers = "in the figure, without numbers" if None in printed else " > ".join(str(one[0]) for one in printed if one)
    shapes = {"larger": cells[more], "smaller": cells[less]}
    return main.also(shapes, {**shapes, "printed": numbers})


def _stand_ins(theirs: tuple[int, int], ours: tuple[int, int]) -> str:
    """Which ranks stand in for the paper's."""
    return "" if ours == theirs else f"; here {ours[0]} and {ours[1]} stand in for them"


# tests --------------------------------------------------------------------------------------------


def has_more(case: ModeCase, claim: Claim, options: Options) -> Verdict:
    """One model has more accuracy than another; less by at most `border`, if that is negative."""
    arm, other, domains, ours = _pair(case, options)
    lead = case.measured.lead(arm, other, domains)
    verdict = is_above(claim, lead, options.get("border", 0.0), ours=ours, unit=_POINTS)
    return on_the_floor(verdict, _floor(case.measured, [arm, other], domains))


def is_alike(case: ModeCase, claim: Claim, options: Options) -> Verdict:
    """Two models differ by less than a border, whichever way."""
    arm, other, domains, ours = _pair(case, options)
    verdict = is_within(claim, case.measured.lead(arm, other, domains), options["border"], ours=ours, unit=_POINTS)
    return on_the_floor(verdict, _floor(case.measured, [arm, other], domains))


def _pair(case: ModeCase, options: Options) -> tuple[Arm, Arm, Sequence[str], str]:
    """Two arms, the domains, and both averages over the seeds that have both; empty without scores."""
    arm, other, domains = case.systems[options["more"]], case.systems[options["less"]], case.texts[options["on"]]
    accuracies = case.measured.accuracies
    own = [accuracies.estimate((arm, other), domains, lambda *both, n=n: 100 * both[n]) for n in range(2)]
    return arm, other, domains, " against ".join(f"{one.value:.2f}" for one in own if one)


def best_has_more(case: ModeCase, claim: Claim, options: Options) -> Verdict:
    """The best of some models has more accuracy than the best of others.

    Which are best is chosen on one half of the documents and judged on the other: where it is chosen it also looks
    best by chance.
    """
    accuracies, domains = case.measured.accuracies, case.texts[options["on"]]
    groups: list[Mapping[str, Arm]] = [case.systems[options[one]] for one in ("better", "others")]
    choosing, judging = (accuracies.half(which) for which in range(2))
    if not choosing.seeds_with([arm for of in groups for arm in of.values()], domains):
        return untestable(claim)
    chosen = [_best(choosing, of, domains) for of in groups]
    compared = [of[name] for of, name in zip(groups, chosen, strict=True)]
    result = judging.estimate(compared, domains, lambda one, two: 100 * (one - two))
    ours = f"{chosen[0]} and {chosen[1]}, chosen on one half of the documents and judged on the other"
    verdict = is_above(claim, result, ours=ours, unit=_POINTS)
    return on_the_floor(verdict, _floor(case.measured, compared, domains))


def _best(accuracies: Averages, arms: Mapping[str, Arm], domains: Sequence[str]) -> str:
    """The one with the highest average over the seeds that all of them have."""
    every = list(arms.values())
    averages = {name: accuracies.estimate(every, domains, lambda *each, n=n: each[n]) for n, name in enumerate(arms)}
    values = {name: average.value for name, average in averages.items() if average is not None}
    return max(values, key=lambda name: values[name])


def gains_more(case: ModeCase, claim: Claim, options: Options) -> Verdict:
    """From the second of four models to the first it rises by more than from the fourth to the third."""
    compared, domains = [case.systems[one] for one in options["gains"]], case.texts[options["on"]]
    gains = case.measured.accuracies.estimate(
        compared, domains, lambda one, two, three, four: 100 * ((one - two) - (three - four))
    )
    return on_the_floor(is_above(claim, gains, unit=_POINTS), _floor(case.measured, compared, domains))


def is_highest(case: ModeCase, claim: Claim, options: Options) -> Verdict:
    """One model against all others on each domain: the least certain lead is judged."""
    own, others, domains = case.systems[options["more"]], options["others"], case.texts[options["on"]]
    every = [case.systems[one] for one in others]
    leads = {(str(other), one): case.measured.lead(own, other, [one]) for other in every for one in domains}
    known = {pair: lead for pair, lead in leads.items() if lead is not None}
    if len(known) < len(leads):
        return untestable(claim)
    least = min(known, key=lambda pair: known[pair].low)
    ahead = sum(lead.low > 0 for lead in known.values())
    ours = f"ahead in {ahead} of {len(known)}; the least certain is shown: {least[0]} on {least[1]}"
    verdict = is_above(claim, known[least], ours=ours, unit=_POINTS)
    return on_the_floor(verdict, _floor(case.measured, [*every, own], domains))


TESTS: Mapping[str, Test] = {
    "more": has_more,
    "alike": is_alike,
    "best-more": best_has_more,
    "gains-more": gains_more,
    "highest": is_highest,
}


def _floor(measured: ModeMeasurements, compared: Sequence[Arm], domains: Sequence[str]) -> str:
    """Why a comparison of these arms would be no result; empty where it is one.

    An arm is no better than untrained if it did not end above the untouched backbone on what it was trained on.
    Averages near that of a guess among all tokens say nothing if that of every arm is.
    """
    if untrained := next(filter(None, (_as_untrained(measured, arm) for arm in compared)), ""):
        return untrained
    values = [100 * one for arm in compared if (one := measured.accuracies.value(arm, domains)) is not None]
    chance = 100 / measured.subject.budget.vocab_size
    if values and max(values) <= chance + NEAR_CHANCE:
        listed = " and ".join(f"{one:.1f}" for one in values)
        return f"{listed} % are within {NEAR_CHANCE:g} points of a guess among all tokens ({chance:.2f} %)."
    return ""


def _as_untrained(measured: ModeMeasurements, arm: Arm) -> str:
    """That an arm is not above the untouched backbone on what it was trained on; empty if it is, or is not known.

    Early stopping restores the best weights, which may be those of the start: such an arm is the backbone itself.
    """
    trained = trained_on(arm, measured.subject.targets)
    own, untouched = (measured.accuracies.value(one, trained) for one in (arm, BACKBONE))
    if own is None or untouched is None or own > untouched + _ROUNDING:
        return ""
    is_same = own >= untouched - _ROUNDING
    words = "did not leave the untouched backbone" if is_same else "ended below the untouched backbone"
    return f"{arm} {words} on {' and '.join(trained)} ({100 * own:.2f} against {100 * untouched:.2f} %)."
