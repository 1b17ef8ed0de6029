"""How MoDE's claims are judged, from stored losses and hits: which model has more accuracy than which other.

Every arm is a single model, so nothing is mixed. An arm whose scores are not there yet is left out.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from workbench_studies.core.averages import Averages, Hits, Place
from workbench_studies.core.measurements import Measurements, ScoredText, Scores
from workbench_studies.core.study import Case, Options, Test, has_more, lead_grows, read_study, systems_of
from workbench_studies.core.verdicts import NEAR_CHANCE, Claim, Verdict, is_above, is_within, on_the_floor, untestable
from workbench_studies.mode.arms import BACKBONE, TABLE_3, Arm, Arms, ModeSize, ReplicateMode, targets_of

_ROUNDING = 1e-9  # between means of the same accuracies over different numbers of seeds


@dataclass
class ModeMeasurements(Measurements):
    """With which tokens were hit, and the parameters of seed models and experts, by name. Averages are in %."""

    subject: ReplicateMode
    hits: dict[Place, Hits] = field(default_factory=dict)
    num_parameters: dict[str, int] = field(default_factory=dict)
    unit = "percentage points"
    scale = 100.0

    @cached_property
    def averages(self) -> Averages:
        """The accuracies, which claims compare here."""
        return Averages(self.hits)

    def value_of(self, system: Hashable, domains: Sequence[str]) -> float | None:
        """The average without its interval; `value` is a perplexity."""
        result = self.average(system, domains)
        return result.value if result else None

    def parameters_of(self, arm: Arm) -> int | None:
        """The number of parameters that an arm trained, in the first seed that has it."""
        is_complete = arm.method in ("backbone", "full")
        names = [run.backbone if is_complete else run.expert(arm, self.subject.targets) for run in self.subject.runs]
        return next((result for name in names if (result := self.num_parameters.get(name))), None)

    def measure(self, scores: Scores) -> Iterator[str]:
        """Adds what the scores give; says after each seed and text where it is."""
        for run in self.subject.runs:
            for domain in self.subject.everywhere:
                text = ScoredText(self, run, domain, scores)
                for arm in self.subject.arms:
                    expert = run.expert(arm, self.subject.targets)
                    text.keep(arm, text.one(expert))
                    if (hits := text.hits(expert)) is not None:
                        self.hits[arm, run.seed, domain] = hits
                yield f"seed {run.seed}, {domain}"

    def floor(self, systems: Sequence[Arm], domains: Sequence[str]) -> str:
        """Why a comparison of these arms would not be a result; empty where it is one.

        An arm is as good as untrained if it did not end above the untouched backbone on what it was trained on.
        Averages near that of a guess among all tokens say nothing if that of every arm is.
        """
        if untrained := next(filter(None, map(self._as_untrained, systems)), ""):
            return untrained
        values = [100 * one for arm in systems if (one := self.averages.value(arm, domains)) is not None]
        chance = 100 / self.subject.budget.vocab_size
        if values and max(values) <= chance + NEAR_CHANCE:
            listed = " and ".join(f"{value:.1f}" for value in values)
            return f"{listed} % are within {NEAR_CHANCE:g} points of a guess among all tokens ({chance:.2f} %)."
        return ""

    def _as_untrained(self, arm: Arm) -> str:
        """That an arm is not above the untouched backbone on its own text; empty if it is, or is not known.

        Early stopping restores the best weights, which may be those of the start: such an arm is the backbone itself.
        """
        trained = targets_of(arm, self.subject.targets)
        own, untouched = (self.averages.value(one, trained) for one in (arm, BACKBONE))
        if own is None or untouched is None or own > untouched + _ROUNDING:
            return ""
        is_same = own >= untouched - _ROUNDING
        words = "did not leave the untouched backbone" if is_same else "ended below the untouched backbone"
        return f"{arm} {words} on {' and '.join(trained)} ({100 * own:.2f} against {100 * untouched:.2f} %)."


STUDY = read_study(__file__)
ModeCase = Case[ModeMeasurements]
_FIGURE = "in the figure, without numbers"


def judge(measured: ModeMeasurements) -> list[Verdict]:
    """Every claim of the paper."""
    return STUDY.judge(TESTS, _cases(measured))


# what the names in claims stand for ---------------------------------------------------------------


def _cases(measured: ModeMeasurements) -> Mapping[str, list[ModeCase]]:
    subject, size = measured.subject, measured.subject.budget
    arms = Arms(size)
    ranks, cells, systems = sorted(arms.by_rank), arms.by_shape, _systems_of(size)
    texts = {
        "first": subject.targets[:1],
        "second": subject.targets[1:],
        "retention": (subject.retention,),
        "average": subject.judged,
    }
    words: dict[str, object] = {name: str(arm) for name, arm in systems.items() if isinstance(arm, Arm)}
    words |= {name: domain for name, (domain, *_) in texts.items() if name != "average"}
    words |= {
        "rank": size.lora.rank,
        "longer": size.longer,
        "start": "copied" if size.mode.init == "copy" else "fresh",
        "rates": ", ".join(systems["rates of one"]),
        "largest_rank": _stand_ins((16, 2048), (size.lora.rank, ranks[-1])),
        "least_rank": _stand_ins((8, 16), (ranks[0], size.lora.rank)),
        "fewest": size.sequences[0],
        "before": size.sequences[-1],
        "fewest_mixed": size.mixed_sequences[0],
    }
    main = ModeCase(measured, systems, texts, words)
    own = (size.mode.num_blocks, size.mode.expert_layers)
    pairs = [((blocks, 2 * layers), (blocks, layers)) for blocks, layers in cells]
    pairs.append(((2 * own[0], own[1] // 2), own))  # as many layers in more blocks
    shapes = []
    for more, less in pairs:
        if more in cells:
            both, known = {"larger": cells[more], "smaller": cells[less]}, {more, less} <= TABLE_3.keys()
            numbers = " > ".join(str(TABLE_3[cell][0]) for cell in (more, less)) if known else _FIGURE
            shapes.append(main.also(both, {**both, "printed": numbers}))
    return {"": [main], "lower rank": [main] if ranks[0] < size.lora.rank else [], "shape": shapes}


def _systems_of(size: ModeSize) -> dict[str, Any]:
    """Arms by their names in claims, and groups of them whose best ones are compared."""
    arms = Arms(size)
    by_rank, by_layers = arms.by_rank, arms.by_layers
    smallest, *_, largest = sorted(arms.by_shape.items(), key=lambda one: one[0][0] * one[0][1])
    amounts = {"fewest": size.sequences[0], "before": size.sequences[-1], "all": None}
    return {
        **arms.table_1,
        **{f"longer {row}": arm for row, arm in arms.longer.items()},
        "own rank": by_rank[size.lora.rank],
        "largest rank": by_rank[max(by_rank)],
        "least rank": by_rank[min(by_rank)],
        **arms.in_more_layers,
        "largest": largest[1],
        "smallest": smallest[1],
        "most layers": by_layers[max(by_layers)],
        "least layers": by_layers[min(by_layers)],
        **{f"{name} {method}": of[n] for method, of in arms.by_sequences.items() for name, n in amounts.items()},
        **{f"fewest mixed {row}": of[size.mixed_sequences[0]] for row, of in arms.by_mixture.items()},
        **{f"rates of {row}": {f"{rate:g}": arm for rate, arm in of.items()} for row, of in arms.by_rate.items()},
        "layers": {str(arm): arm for arm in by_layers.values()},
        "ranks": {str(arm): arm for arm in by_rank.values()},
    }


def _stand_ins(theirs: tuple[int, int], ours: tuple[int, int]) -> str:
    """Which ranks stand in for the paper's."""
    return "" if ours == theirs else f"; here {ours[0]} and {ours[1]} stand in for them"


def is_alike(case: ModeCase, claim: Claim, options: Options) -> Verdict:
    """Two models differ by less than a border, whichever way."""
    measured, (other, arm, domains) = case.measured, systems_of(case, options)
    difference, ours = measured.difference(arm, other, domains), measured.against(arm, other, domains)
    verdict = is_within(claim, difference, options["border"], ours=ours, unit=measured.unit)
    return on_the_floor(verdict, measured.floor([arm, other], domains))


def best_has_more(case: ModeCase, claim: Claim, options: Options) -> Verdict:
    """The best of some models has more accuracy than the best of others.

    Which are best is chosen on one half of the documents and judged on the other: where it is chosen it also looks
    best by chance.
    """
    accuracies, domains = case.measured.averages, case.texts[options["on"]]
    groups: list[Mapping[str, Arm]] = [case.systems[options[one]] for one in ("better", "others")]
    choosing, judging = (accuracies.half(which) for which in range(2))
    if not choosing.seeds_with([arm for of in groups for arm in of.values()], domains):
        return untestable(claim)
    chosen = [_best(choosing, of, domains) for of in groups]
    compared = [of[name] for of, name in zip(groups, chosen, strict=True)]
    result = judging.estimate(compared, domains, lambda one, two: 100 * (one - two))
    ours = f"{chosen[0]} and {chosen[1]}, chosen on one half of the documents and judged on the other"
    verdict = is_above(claim, result, ours=ours, unit=case.measured.unit)
    return on_the_floor(verdict, case.measured.floor(compared, domains))


def _best(accuracies: Averages, arms: Mapping[str, Arm], domains: Sequence[str]) -> str:
    """The one with the highest average over the seeds that all of them have."""
    every = list(arms.values())
    averages = {name: accuracies.estimate(every, domains, lambda *each, n=n: each[n]) for n, name in enumerate(arms)}
    values = {name: average.value for name, average in averages.items() if average is not None}
    return max(values, key=lambda name: values[name])


def is_highest(case: ModeCase, claim: Claim, options: Options) -> Verdict:
    """One model against all others on each domain: the least certain lead is judged."""
    own, others, domains = case.systems[options["higher"]], options["others"], case.texts[options["on"]]
    every = [case.systems[one] for one in others]
    leads = {
        (str(other), domain): case.measured.difference(own, other, [domain]) for other in every for domain in domains
    }
    known = {pair: lead for pair, lead in leads.items() if lead is not None}
    if len(known) < len(leads):
        return untestable(claim)
    least = min(known, key=lambda pair: known[pair].low)
    ahead = sum(lead.low > 0 for lead in known.values())
    ours = f"ahead in {ahead} of {len(known)}; the least certain is shown: {least[0]} on {least[1]}"
    verdict = is_above(claim, known[least], ours=ours, unit=case.measured.unit)
    return on_the_floor(verdict, case.measured.floor([*every, own], domains))


TESTS: Mapping[str, Test] = {
    "more": has_more,
    "lead-grows": lead_grows,
    "alike": is_alike,
    "best-more": best_has_more,
    "highest": is_highest,
}
