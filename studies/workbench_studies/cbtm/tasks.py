"""Tables 1, 10 and 11: few-shot classification by the arm of the ablations, with Dense and the seed model.

An accuracy is that of one draw of demonstrations, averaged over tasks as in the paper's last column. Its interval is
Student's over the draws, each averaged over the replication's seeds, which drew the same examples, and over the seeds.
All draws are asked the same test examples, so a difference that other examples might reverse is undecided, however
alike its draws. Answers are named by their routing and top-k (`cluster top-4`, `fixed all`), or `dense`, `seed`
and `chance`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any

from engine.statistics.estimates import Estimate, half_width, of_seeds, student_mean
from workbench_studies.cbtm.measurements import CbtmMeasurements
from workbench_studies.cbtm.names import PAPER
from workbench_studies.core.averages import Row
from workbench_studies.core.study import Case, Options
from workbench_studies.core.verdicts import NEAR_CHANCE, UNDECIDED, UNTESTABLE, Claim, Verdict, is_above, on_the_floor

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


def is_right_more_often(case: Case[CbtmMeasurements], claim: Claim, options: Options) -> Verdict:
    """One way to answer is right more often than another."""
    measured, better, other = case.measured, options["better"], options["other"]
    result = _difference(measured, better, other)
    verdict = on_the_floor(is_above(claim, result, unit="percentage points"), _floor(measured, better, other))
    if verdict.mark == UNTESTABLE or result is None:
        return verdict
    why = _too_little(measured, better, other, result)
    return replace(verdict, mark=UNDECIDED, why=f"Undecided: {why}") if why else verdict


def _floor(measured: CbtmMeasurements, better: str, other: str) -> str:
    """Why both accuracies are guesses; empty where one of them is not, or chance is not known."""
    one, two, chance = (_average(measured, routing) for routing in (better, other, "chance"))
    if not (one and two and chance) or max(one.mean, two.mean) > chance.mean + NEAR_CHANCE:
        return ""
    within = f"{one.mean:.1f} and {two.mean:.1f} % are within {NEAR_CHANCE:g} points of chance"
    return f"{within}, which is right in {chance.mean:.1f} %."


def _too_little(measured: CbtmMeasurements, better: str, other: str, result: Estimate) -> str:
    """Why draws on the same examples cannot tell a difference; empty where they can."""
    if result.high - result.low < _NO_WIDTH:
        return "every draw of demonstrations gives the same difference, which does not tell how it varies."
    reach = _reach(measured, better, other)
    words = "the tasks have too few examples: by themselves they leave ±{:.1f} percentage points."
    return words.format(reach) if abs(result.value) <= reach else ""


def _reach(measured: CbtmMeasurements, better: str, other: str) -> float:
    """How far, at 95 %, other examples might move the difference: that of two shares, averaged over tasks.

    As if each way had been asked other examples: which it was right on is not kept. So this is rather too far.
    """
    seed = min(seed for seed in measured.answers if _tasks(measured, seed, better))
    examples = {task["name"]: task["num_test"] for task in measured.answers[seed]["tasks"]}
    shares = [_tasks(measured, seed, routing) for routing in (better, other)]
    variance = sum(
        (share := fmean(of_task[name]["seeds"])) * (1 - share) / number
        for of_task in shares
        for name, number in examples.items()
    )
    return 100 * _95 * math.sqrt(variance) / len(examples)


def _difference(measured: CbtmMeasurements, better: str, other: str) -> Estimate | None:
    pairs = [
        (one, two)
        for seed in measured.answers
        if (one := _accuracies(measured, seed, better)) and (two := _accuracies(measured, seed, other))
    ]
    if not pairs:
        return None
    apart = [[a - b for a, b in zip(one, two, strict=True)] for one, two in pairs]
    of_draws, by_seed = [fmean(draw) for draw in zip(*apart, strict=True)], tuple(map(fmean, apart))
    from_draws, from_seeds = of_seeds(of_draws), of_seeds(by_seed)  # draws are sampled as seeds are
    reach = max(map(half_width, (from_draws, from_seeds, [*from_draws, *from_seeds])))
    return Estimate(fmean(by_seed), fmean(by_seed) - reach, fmean(by_seed) + reach, by_seed)


def _accuracies(measured: CbtmMeasurements, seed: int, routing: str) -> list[float]:
    """The accuracy in % of each draw of demonstrations, averaged over tasks; empty where it was not measured."""
    tasks = _tasks(measured, seed, routing).values()
    return [100 * fmean(of_draw) for of_draw in zip(*(task["seeds"] for task in tasks), strict=True)]


def _tasks(measured: CbtmMeasurements, seed: int, routing: str) -> Mapping[str, Any]:
    """The results of each task; empty where it was not measured."""
    rows = measured.answers[seed]["rows"]
    return next((row["tasks"] for row in rows if _routing_of(measured, seed, row) == routing), {})


def _routing_of(measured: CbtmMeasurements, seed: int, row: Mapping[str, Any]) -> str:
    """What a row of a classification is here; single experts of the mixture are not compared."""
    if row["way"] == "beside":
        return "seed" if row["expert"] == measured.subject.runs[seed].seed_expert else "dense"
    if row["way"] == "chance":
        return "chance"
    return f"{row['way']} top-{row['top_k']}" if row["top_k"] is not None else f"{row['way']} all"


def _average(measured: CbtmMeasurements, routing: str) -> Any:
    every = [result for seed in measured.answers if (result := _accuracies(measured, seed, routing))]
    return student_mean([fmean(draw) for draw in zip(*every, strict=True)]) if every else None


def by_variant(measured: CbtmMeasurements) -> list[Row]:
    """Tables 1 and 11: accuracies in %, averaged over tasks, with the paper's average of 16 clusters."""
    first = min(measured.answers, default=0)
    rows = measured.answers[first]["rows"] if measured.answers else []
    routings = dict.fromkeys(_routing_of(measured, first, row) for row in rows if row["way"] != "alone")
    known = {routing: result for routing in routings if (result := _average(measured, routing))}
    return [
        {
            "answers": _WORDS[routing.partition(" ")[0]],
            "of": routing.partition(" ")[2],
            "ours": result.mean,
            "low": result.low,
            "high": result.high,
            "paper": PAPER["accuracies"].get(routing),
        }
        for routing, result in known.items()
    ]


def routes(measured: CbtmMeasurements) -> list[Row]:
    """Table 10: the clusters that weigh most on each task, in the first seed."""
    tasks = measured.answers[min(measured.answers)]["tasks"] if measured.answers else []
    return [
        {"task": task["name"]}
        | {
            rank: ", ".join(one["terms"][:3])
            for rank, one in zip(("1st", "2nd", "3rd"), task["clusters"], strict=False)
        }
        for task in tasks
    ]
