"""Tables 1, 10 and 11: few-shot classification by the arm of the ablations, Dense and the seed model beside it.

An accuracy is that of one draw of demonstrations, averaged over tasks as in the paper's last column. Its interval is
Student's over the draws, each averaged over the replication's seeds, which drew the same examples, and over the seeds.
All draws are asked the same test examples, so a difference that other examples might reverse is undecided, however
alike its draws.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from engine.statistics.estimates import Estimate, half_width, of_seeds, student_mean
from workbench_studies.cbtm import paper
from workbench_studies.cbtm.evidence import CbtmEvidence
from workbench_studies.core.findings import Row
from workbench_studies.core.verdicts import (
    NEAR_CHANCE,
    NO_SCORES,
    UNDECIDED,
    UNTESTABLE,
    Claim,
    Verdict,
    is_above,
    on_the_floor,
    untestable,
)

Variant = tuple[str, int | None]  # routing and top-k; or ("chance", None), ("dense", None), ("seed", None)
_NONE = "No folder of labelled tasks was given: --tasks FOLDER."
_FEW = 4  # the paper's top-k
_95 = 1.959964  # standard deviations
_NO_WIDTH = 1e-9  # percentage points
_WORDS = {
    "cluster": "cluster routing",
    "updating": "updating performance routing",
    "fixed": "fixed performance routing",
    "fixed-validation": "fixed performance routing with validation examples",
    "equal": "equal weights",
    "chance": "chance",
    "dense": "Dense",
    "seed": "the seed model",
}


def judge_tasks(evidence: CbtmEvidence) -> list[Verdict]:
    """All claims on accuracy."""
    few = _FEW if evidence.subject.main.num_models > _FEW else None
    return [
        _is_better(evidence, "Table 1", ("cluster", few), ("dense", None)),
        *([_is_better(evidence, "Table 1", ("cluster", None), ("dense", None))] if few else []),
        *([_is_better(evidence, "Table 11", ("fixed", few), ("cluster", few))] if few else []),  # of all it is not
        _is_better(evidence, "Table 11", ("fixed-validation", few), ("cluster", few)),
    ]


def _is_better(evidence: CbtmEvidence, where: str, better: Variant, other: Variant) -> Verdict:
    printed = f"{_printed(better)} > {_printed(other)} % with 16 clusters"
    sentence = f"{_words(evidence, better)} is right more often than {_words(evidence, other)}"
    claim = Claim(where, sentence, printed, id=f"{better[0]}-over-{'few' if better[1] else 'all'}")
    if not evidence.measured.answers:
        return untestable(claim, NO_SCORES if evidence.subject.has_tasks else _NONE)
    result = _difference(evidence, better, other)
    verdict = on_the_floor(is_above(claim, result, unit="percentage points"), _floor(evidence, better, other))
    if verdict.mark == UNTESTABLE:
        return verdict
    why = "" if result is None else _too_little(evidence, better, other, result)
    if not why:
        return verdict
    return replace(verdict, mark=UNDECIDED, why=f"Undecided: {why}")


def _floor(evidence: CbtmEvidence, better: Variant, other: Variant) -> str:
    """Why both accuracies are guesses; empty where one of them is not, or chance is not known."""
    results = [_average(evidence, variant) for variant in (better, other, ("chance", None))]
    if None in results:
        return ""
    *pair, chance = (result.mean for result in results)
    if max(pair) > chance + NEAR_CHANCE:
        return ""
    return (
        f"{pair[0]:.1f} and {pair[1]:.1f} % are within {NEAR_CHANCE:g} points of chance, which is right in "
        f"{chance:.1f} %."
    )


def _too_little(evidence: CbtmEvidence, better: Variant, other: Variant, result: Estimate) -> str:
    """Why draws on the same examples cannot tell a difference; empty where they can."""
    if result.high - result.low < _NO_WIDTH:
        return "every draw of demonstrations gives the same difference, which does not tell how it varies."
    reach = _reach(evidence, better, other)
    if abs(result.value) > reach:
        return ""
    return f"the tasks have too few examples: by themselves they leave ±{reach:.1f} percentage points."


def _reach(evidence: CbtmEvidence, better: Variant, other: Variant) -> float:
    """How far, at 95 %, other examples might move the difference: that of two shares, averaged over tasks.

    As if each way had been asked other examples: which it was right on is not kept. So this is rather too far.
    """
    seed = min(seed for seed in evidence.measured.answers if _tasks(evidence, seed, better))
    examples = {task["name"]: task["num_test"] for task in evidence.measured.answers[seed]["tasks"]}
    shares = [_tasks(evidence, seed, variant) for variant in (better, other)]
    variance = sum(
        (share := fmean(of_task[name]["seeds"])) * (1 - share) / number
        for of_task in shares
        for name, number in examples.items()
    )
    return 100 * _95 * math.sqrt(variance) / len(examples)


def _words(evidence: CbtmEvidence, variant: Variant) -> str:
    routing, top_k = variant
    if routing in ("dense", "seed", "chance"):
        return _WORDS[routing]
    return f"{_WORDS[routing]} over {'all' if top_k is None else f'the best {top_k}'} of {evidence.subject.main}"


def _printed(variant: Variant) -> float | None:
    return paper.TABLE_1.get(variant[0]) or paper.TABLE_11.get(variant)


def _difference(evidence: CbtmEvidence, better: Variant, other: Variant) -> Estimate | None:
    pairs = {
        seed: (one, two)
        for seed in evidence.measured.answers
        if (one := _accuracies(evidence, seed, better)) and (two := _accuracies(evidence, seed, other))
    }
    if not pairs:
        return None
    apart = [[a - b for a, b in zip(one, two, strict=True)] for one, two in pairs.values()]
    of_draws, by_seed = [fmean(draw) for draw in zip(*apart, strict=True)], tuple(map(fmean, apart))
    from_draws, from_seeds = of_seeds(of_draws), of_seeds(by_seed)  # draws are sampled as seeds are
    reach = max(map(half_width, (from_draws, from_seeds, [*from_draws, *from_seeds])))
    return Estimate(fmean(by_seed), fmean(by_seed) - reach, fmean(by_seed) + reach, by_seed)


def _accuracies(evidence: CbtmEvidence, seed: int, variant: Variant) -> list[float]:
    """The accuracy in % of each draw of demonstrations, averaged over tasks; empty where it was not measured."""
    tasks = _tasks(evidence, seed, variant).values()
    return [100 * fmean(of_draw) for of_draw in zip(*(task["seeds"] for task in tasks), strict=True)]


def _tasks(evidence: CbtmEvidence, seed: int, variant: Variant) -> Mapping[str, Any]:
    """The results of each task; empty where it was not measured."""
    rows = evidence.measured.answers[seed]["rows"]
    return next((row["tasks"] for row in rows if _variant(evidence, seed, row) == variant), {})


def _variant(evidence: CbtmEvidence, seed: int, row: Mapping[str, Any]) -> Variant:
    """What a row of a classification is here; experts of the mixture by themselves are nothing that we compare."""
    if row["way"] != "beside":
        return row["way"], row["top_k"]
    run = evidence.subject.runs[seed]
    return ("seed" if row["expert"] == run.seed_expert else "dense", None)


# tables -------------------------------------------------------------------------------------------


def by_variant(evidence: CbtmEvidence) -> list[Row]:
    """Tables 1 and 11: accuracies in %, averaged over tasks, with the paper's average of 16 clusters."""
    return [
        {
            "answers": _WORDS[variant[0]],
            "of": _of(variant),
            "ours": result.mean,
            "low": result.low,
            "high": result.high,
            "paper": _printed(variant),
        }
        for variant in _variants(evidence)
        if (result := _average(evidence, variant))
    ]


def _variants(evidence: CbtmEvidence) -> Iterator[Variant]:
    if evidence.measured.answers:
        seed = min(evidence.measured.answers)
        rows = evidence.measured.answers[seed]["rows"]
        yield from dict.fromkeys(_variant(evidence, seed, row) for row in rows if row["way"] != "alone")


def _of(variant: Variant) -> str:
    if variant[0] in ("dense", "seed", "chance"):
        return ""
    return "all" if variant[1] is None else f"top-{variant[1]}"


def _average(evidence: CbtmEvidence, variant: Variant) -> Any:
    every = [result for seed in evidence.measured.answers if (result := _accuracies(evidence, seed, variant))]
    return student_mean([fmean(draw) for draw in zip(*every, strict=True)]) if every else None


def routes(evidence: CbtmEvidence) -> list[Row]:
    """Table 10: the clusters that weigh most on each task, in the first seed."""
    if not evidence.measured.answers:
        return []
    result = evidence.measured.answers[min(evidence.measured.answers)]
    return [{"task": task["name"], **_by_place(task["clusters"])} for task in result["tasks"]]


def _by_place(clusters: Sequence[Mapping[str, Any]]) -> Row:
    return {place: ", ".join(one["terms"][:_TERMS]) for place, one in zip(_PLACES, clusters, strict=False)}


_PLACES, _TERMS = ("1st", "2nd", "3rd"), 3
