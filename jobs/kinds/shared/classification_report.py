"""The report of a few-shot classification: accuracies by method, task and seed, and clusters by task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from statistics import fmean
from typing import Any

from engine.analysis.fewshot.prompts import Episode
from engine.analysis.fewshot.routing import Accuracies
from engine.analysis.fewshot.tasks import Task
from engine.loading.plan import GenerationPlan
from engine.statistics.estimates import LEVEL, student_mean
from workbench.answers.posteriors import Manifest
from workbench.kinds.analysis import Classify
from workbench.registry.clusters.cluster_routing import ClusterLabel

_TOP_CLUSTERS = 3  # of each task (table 10)
_CUT_TO = 60  # characters of a label's word
UPDATING = "Updating routing sees the correct answers of earlier test examples; no other routing does."


@dataclass(frozen=True)
class EpisodeFacts:
    """Facts about an episode's prompts: their number, how many were cut, and the mean demonstrations left."""

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
    """One task and seed: the mixture's accuracies, those of other experts, and the mean cluster weights [E]."""

    task: Task
    facts: EpisodeFacts
    accuracies: Accuracies
    beside: list[float]
    shares_E: list[float] | None


def findings(
    spec: Classify,
    planned: GenerationPlan,
    names: Mapping[str, str],
    measured: Sequence[Measured],
    words: Mapping[int, ClusterLabel],
) -> dict[str, Any]:
    """The findings as JSON. `names` are those of all experts, the mixture's first; `words` describe its clusters."""
    by_task = _by_task(measured)
    # “way” is a stored name: how experts are chosen.
    rows = [_row({"way": "chance"}, {name: [_chance(one) for one in seeds] for name, seeds in by_task.items()})]
    for place, name in enumerate(names.values()):
        accuracies = {
            task: [[*one.accuracies.by_expert, *one.beside][place] for one in seeds] for task, seeds in by_task.items()
        }
        is_member = place < len(planned.experts)
        rows.append(_row({"way": "alone" if is_member else "beside", "expert": name}, accuracies))
    for routing in measured[0].accuracies.by_variant:
        shares = {task: [one.accuracies.by_variant[routing] for one in seeds] for task, seeds in by_task.items()}
        rows.append(_row({"way": routing.routing, "top_k": routing.top_k}, shares))
    report = {
        "mixture": spec.mixture,
        "path": spec.path,
        "num_shots": spec.num_shots,
        "num_seeds": spec.num_seeds,
        "num_validation": spec.num_validation,
        "num_experts": len(planned.experts),
        "normalise": spec.normalise,
        "newest_weight": spec.newest_weight,
        "confidence": LEVEL,
        "manifest": Manifest.of(planned).model_dump(),
        "rows": rows,
        "tasks": [_task_json(name, seeds, planned, words) for name, seeds in by_task.items()],
    }
    return {**report, "notes": _notes(report), "sentence": _sentence(report)}


def _by_task(measured: Sequence[Measured]) -> dict[str, list[Measured]]:
    by_task: dict[str, list[Measured]] = {}
    for one in measured:
        by_task.setdefault(one.task.name, []).append(one)
    return by_task


def _row(what: Mapping[str, Any], shares: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Accuracies by task and their average (the paper's last column), each with its interval over the seeds."""
    averages = [fmean(of_seed) for of_seed in zip(*shares.values(), strict=True)]
    return {
        "top_k": None,
        "expert": "",
        **what,
        "average": asdict(student_mean(averages)),
        "tasks": {task: {**asdict(student_mean(values)), "seeds": list(values)} for task, values in shares.items()},
    }


def _chance(one: Measured) -> float:
    return 1 / len(one.task.labels)


def _task_json(
    name: str, seeds: Sequence[Measured], planned: GenerationPlan, words: Mapping[int, ClusterLabel]
) -> dict[str, Any]:
    """One task as JSON: sizes, prompts that were cut, and the clusters with the largest weights (table 10)."""
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


def _clusters(
    seeds: Sequence[Measured], planned: GenerationPlan, words: Mapping[int, ClusterLabel]
) -> Iterable[dict[str, Any]]:
    """The clusters with the largest mean weights over test examples and seeds."""
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


def _notes(report: Mapping[str, Any]) -> list[str]:
    """Notes that a reader needs to interpret the numbers."""
    methods = {row["way"] for row in report["rows"]}
    notes = [
        f"{task['name']}: {task['num_cut']} of {task['num_prompts']} prompts exceeded the context and were cut; "
        f"{task['mean_shots']:.1f} of {report['num_shots']} demonstrations were left on average."
        for task in report["tasks"]
        if task["num_cut"]
    ]
    borrowed = [task["name"] for task in report["tasks"] if not task["has_validation"]]
    if borrowed and "fixed-validation" in methods:
        notes.append(f"Validation examples are training examples not used as demonstrations: {', '.join(borrowed)}.")
    return [*notes, UPDATING] if "updating" in methods else notes


def _sentence(report: Mapping[str, Any]) -> str:
    routed = [row for row in report["rows"] if row["way"] not in ("chance", "alone", "beside", "equal")]
    equal, chance = (next(row for row in report["rows"] if row["way"] == method) for method in ("equal", "chance"))
    best = max(routed, key=lambda row: row["average"]["mean"])
    kept = "all experts" if best["top_k"] is None else f"top-{best['top_k']}"
    num_tasks = len(report["tasks"])
    return (
        f"{report['num_shots']} demonstrations, {num_tasks} task{'' if num_tasks == 1 else 's'}, {report['num_seeds']} "
        f"seed{'' if report['num_seeds'] == 1 else 's'}: {best['way']} routing with {kept} gets "
        f"{best['average']['mean']:.1%} correct, the best of all routings; equal "
        f"weights {equal['average']['mean']:.1%}, "
        f"chance {chance['average']['mean']:.1%}."
    )
