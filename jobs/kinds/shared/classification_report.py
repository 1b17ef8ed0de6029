"""What a few-shot classification found, as the report keeps it: accuracies by way, task and seed; clusters by task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from statistics import fmean
from typing import Any

from engine.analysis.fewshot.comparison import Accuracies
from engine.analysis.fewshot.prompts import Episode
from engine.analysis.fewshot.tasks import Task
from engine.statistics.intervals import student_mean
from workbench.analysis.cluster_routing import ClusterWords
from workbench.generation import Plan
from workbench.kinds.analysis.classify import Classify

CONFIDENCE = 0.95  # of the intervals
_TOP_CLUSTERS = 3  # of each task (table 10)
_CUT_TO = 60  # characters of a label's word
UPDATING = "Updating performance routing is told the right answers of the test examples before; no other way is."


@dataclass(frozen=True)
class EpisodeFacts:
    """What is told of an episode's prompts: how many, how many were cut, and the demonstrations left before a test."""

    num_prompts: int
    num_tests: int
    num_cut: int
    mean_shots: float

    @classmethod
    def of(cls, episode: Episode) -> EpisodeFacts:
        prompts = list(chain(*episode.parts.values()))
        shots = fmean(prompt.num_shots for prompt in episode.test)
        return cls(len(prompts), len(episode.test), sum(prompt.is_cut for prompt in prompts), shots)


@dataclass(frozen=True)
class Measured:
    """One task with one seed: accuracies, those of experts beside the mixture, and the mean cluster weights [E]."""

    task: Task
    facts: EpisodeFacts
    found: Accuracies
    beside: list[float]
    shares_E: list[float] | None


def findings(
    spec: Classify,
    planned: Plan,
    names: Mapping[str, str],
    measured: Sequence[Measured],
    words: Mapping[int, ClusterWords],
) -> dict[str, Any]:
    """The findings as JSON; `names` are all experts', those of the mixture first, `words` those of its clusters."""
    by_task = _by_task(measured)
    rows = [_row({"way": "chance"}, {name: [_chance(one) for one in seeds] for name, seeds in by_task.items()})]
    for place, name in enumerate(names.values()):
        alone = {task: [[*one.found.by_expert, *one.beside][place] for one in seeds] for task, seeds in by_task.items()}
        is_member = place < len(planned.experts)
        rows.append(_row({"way": "alone" if is_member else "beside", "expert": name}, alone))
    for way in measured[0].found.by_variant:
        shares = {task: [one.found.by_variant[way] for one in seeds] for task, seeds in by_task.items()}
        rows.append(_row({"way": way.routing, "top_k": way.top_k}, shares))
    found = {
        "mixture": spec.mixture,
        "path": spec.path,
        "num_shots": spec.num_shots,
        "num_seeds": spec.num_seeds,
        "num_validation": spec.num_validation,
        "num_experts": len(planned.experts),
        "normalise": spec.normalise,
        "newest_weight": spec.newest_weight,
        "confidence": CONFIDENCE,
        "manifest": planned.manifest().model_dump(),
        "rows": rows,
        "tasks": [_told(name, seeds, planned, words) for name, seeds in by_task.items()],
    }
    return {**found, "notes": _notes(found), "sentence": _sentence(found)}


def _by_task(measured: Sequence[Measured]) -> dict[str, list[Measured]]:
    found: dict[str, list[Measured]] = {}
    for one in measured:
        found.setdefault(one.task.name, []).append(one)
    return found


def _row(what: Mapping[str, Any], shares: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Accuracies by task and their average (the paper's last column), each with its interval over the seeds."""
    averages = [fmean(of_seed) for of_seed in zip(*shares.values(), strict=True)]
    return {
        "top_k": None,
        "expert": "",
        **what,
        "average": asdict(student_mean(averages, CONFIDENCE)),
        "tasks": {
            task: {**asdict(student_mean(values, CONFIDENCE)), "seeds": list(values)} for task, values in shares.items()
        },
    }


def _chance(one: Measured) -> float:
    return 1 / len(one.task.labels)


def _told(name: str, seeds: Sequence[Measured], planned: Plan, words: Mapping[int, ClusterWords]) -> dict[str, Any]:
    """One task: its sizes, how many prompts were cut, and the clusters of the experts that weigh most (table 10)."""
    task = seeds[0].task
    return {
        "name": name,
        "labels": [label[:_CUT_TO] for label in task.labels],
        "words": [word[:_CUT_TO] for word in task.words],
        "template": task.template,
        "num_train": len(task.train),
        "num_test": seeds[0].facts.num_tests,
        "has_validation": bool(task.validation),
        "num_prompts": sum(one.facts.num_prompts for one in seeds),
        "num_cut": sum(one.facts.num_cut for one in seeds),
        "mean_shots": fmean(one.facts.mean_shots for one in seeds),  # every seed has the same test examples
        "clusters": list(_clusters(seeds, planned, words)),
    }


def _clusters(seeds: Sequence[Measured], planned: Plan, words: Mapping[int, ClusterWords]) -> Iterable[dict[str, Any]]:
    """The clusters that weigh most on average over test examples and seeds."""
    weighed = [one.shares_E for one in seeds if one.shares_E is not None]
    clusters = planned.clusters
    if not weighed or clusters is None:
        return
    means_E = [fmean(of_expert) for of_expert in zip(*weighed, strict=True)]
    for place in sorted(range(len(means_E)), key=lambda place: -means_E[place])[:_TOP_CLUSTERS]:
        number = clusters[place]
        yield {
            "expert": planned.experts[place].name,
            "share": means_E[place],
            "number": number,
            "cluster": words[number].name,
            "terms": list(words[number].terms),
        }


def _notes(found: Mapping[str, Any]) -> list[str]:
    """What a reader must know to take the numbers for what they are."""
    ways = {row["way"] for row in found["rows"]}
    notes = [
        f"{task['name']}: {task['num_cut']} of {task['num_prompts']} prompts did not fit the context and were cut; "
        f"{task['mean_shots']:.1f} of {found['num_shots']} demonstrations were left on average."
        for task in found["tasks"]
        if task["num_cut"]
    ]
    borrowed = [task["name"] for task in found["tasks"] if not task["has_validation"]]
    if borrowed and "fixed-validation" in ways:
        notes.append(f"Validation examples are training examples that are no demonstrations: {', '.join(borrowed)}.")
    return [*notes, UPDATING] if "updating" in ways else notes


def _sentence(found: Mapping[str, Any]) -> str:
    routed = [row for row in found["rows"] if row["way"] not in ("chance", "alone", "beside", "equal")]
    equal, chance = (next(row for row in found["rows"] if row["way"] == way) for way in ("equal", "chance"))
    best = max(routed, key=lambda row: row["average"]["mean"])
    kept = "all experts" if best["top_k"] is None else f"top-{best['top_k']}"
    num_tasks = len(found["tasks"])
    return (
        f"{found['num_shots']} demonstrations, {num_tasks} task{'' if num_tasks == 1 else 's'}, {found['num_seeds']} "
        f"seed{'' if found['num_seeds'] == 1 else 's'}: {best['way']} routing with {kept} answers "
        f"{best['average']['mean']:.1%} right, and no routing more; equal weights {equal['average']['mean']:.1%}, "
        f"chance {chance['average']['mean']:.1%}."
    )
