"""Few-shot classification (C-BTM §5 and A.7): every expert scores every option once, then each routing answers.

An expert's scores for the prompts of a task and seed are an artifact with a key in the registry: another temperature,
top-k or mixture of the same experts needs no model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property, partial
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from sqlalchemy.orm import Session
from torch import Tensor

from engine.analysis.fewshot.prompts import Episode, Ids, Prompt, Shots, encode_options, make_episode, max_prompt_tokens
from engine.analysis.fewshot.routing import ROUTINGS, Accuracies, Answered, Answers, compare_routings, divisors
from engine.analysis.fewshot.scoring import score_options
from engine.analysis.fewshot.tasks import Task, read_tasks
from engine.clusters.artifact import open_clustering
from engine.errors import MixtureError
from engine.events import Event, Progress
from engine.files import ArtifactRef
from engine.loading.plan import GenerationPlan, PlannedExpert
from engine.methods.multi_expert_files import read_limits
from engine.mixing.cluster import ClusterGate, Routing
from engine.mixing.gates.cluster import DistanceConfig
from engine.models.expert_model import ExpertModel
from engine.statistics.estimates import LEVEL, student_mean
from engine.text.tokenizer import Tokenizer, load_tokenizer
from jobs.attempt.work import Events, JobRun, Work
from jobs.kinds.shared.resume_guard import report_reproducible_from
from jobs.kinds.shared.scoring import load_experts
from workbench.answers.posteriors import Manifest
from workbench.errors import BadSpecError
from workbench.formatting.number_format import pluralize
from workbench.kinds.analysis import Classify
from workbench.registry.clusters.cluster_routing import ClusterLabel, describe_clusters
from workbench.registry.experts import with_another_tokenizer
from workbench.registry.mixtures import mixture_row
from workbench.registry.reports import register_report
from workbench.requests.planning import plan
from workbench.store import artifact_kinds

_LEAST_BLOCK = 2  # the shortest context, in tokens, that a model must support
_TOP_CLUSTERS = 3  # of each task (table 10)
_CUT_TO = 60  # characters of a label's word
UPDATING = "Updating routing sees the correct answers of earlier test examples; no other routing does."


@dataclass(frozen=True)
class ClassificationInputs:
    """The mixture, other experts to compare with, and the terms of the mixture's clusters by number."""

    mixture_id: str
    plan: GenerationPlan
    beside: tuple[PlannedExpert, ...]
    labels: Mapping[int, ClusterLabel]

    @cached_property
    def names(self) -> dict[str, str]:
        """The names of all experts by id, those of the mixture first."""
        return {expert.id: expert.name for expert in (*self.plan.experts, *self.beside)}

    def by_base(self) -> dict[ArtifactRef, dict[str, ArtifactRef]]:
        """The files of all experts."""
        files = {base: dict(kept) for base, kept in self.plan.files().items()}
        for expert in self.beside:
            files.setdefault(expert.base, {})[expert.id] = expert.kept
        return files


@dataclass(frozen=True)
class _PromptSet:
    """The prompts of one task and seed, which every expert scores.

    `make` builds them again when they are needed: the prompts of all tasks and seeds would not fit in memory.
    """

    task: Task
    options: tuple[Ids, ...]
    make: Callable[[], Episode]
    sha256: str  # of all prompts and options, as tokens: they determine the answers
    num_prompts: int
    num_tests: int
    num_cut: int  # prompts
    mean_shots: float  # demonstrations that are left

    @classmethod
    def of(cls, task: Task, options: tuple[Ids, ...], make: Callable[[], Episode]) -> _PromptSet:
        episode, digest = make(), hashlib.sha256(repr(options).encode())
        for part, prompts in episode.parts.items():
            digest.update(repr((part, [prompt.ids for prompt in prompts])).encode())
        everything = list(chain(*episode.parts.values()))
        num_cut, shots = sum(prompt.is_cut for prompt in everything), fmean(prompt.num_shots for prompt in episode.test)
        return cls(task, options, make, digest.hexdigest(), len(everything), len(episode.test), num_cut, shots)

    def key(self, expert_id: str) -> str:
        """The key of an expert's answers."""
        return f"answers:{expert_id}:{self.sha256}"


def run(work: Work, spec: Classify) -> JobRun:
    """Scores what is missing, base by base, then compares the routings; the report is written at the end."""
    with work.reading() as session:
        inputs = _read(session, work, spec)
    tasks = read_tasks(Path(spec.path))
    inputs.plan.base.check()
    tokenizer = load_tokenizer(inputs.plan.base.folder)
    max_positions = min(read_limits(base.folder).max_positions for base in inputs.by_base())
    shots = Shots(spec.num_shots, spec.num_validation, spec.max_examples)
    prompt_sets = []
    for task in tasks:
        options = encode_options(task, tokenizer)
        max_tokens = max_prompt_tokens(task, options, max_positions)
        for seed in range(spec.num_seeds):
            make = partial(make_episode, task, tokenizer, shots, seed, max_tokens)
            prompt_sets.append(_PromptSet.of(task, options, make))
    folders = yield from _score(work, inputs, prompt_sets)
    nearness = _Nearness(inputs.plan, tokenizer, work.settings.device)
    measured: list[MeasuredEpisode] = []
    for prompts in prompt_sets:
        measured.append(_measure(spec, inputs, prompts, folders, nearness))
        yield Progress(len(measured), len(prompt_sets), "comparisons")
    report_findings = findings(spec, inputs, measured)
    report_findings["reproducible_from"] = report_reproducible_from(work)

    def register(session: Session) -> dict[str, Any]:
        title = f"Few-shot classification by {spec.mixture}"
        report = register_report(
            session, "classification", title, report_findings, about_id=inputs.mixture_id, job_id=work.job_id
        )
        return {"mixture": spec.mixture, "report": report.id, "sentence": report_findings["sentence"]}

    return register


def _read(session: Session, work: Work, spec: Classify) -> ClassificationInputs:
    planned = plan(session, work.storage, spec.mixture)
    beside = [plan(session, work.storage, name) for name in spec.experts]
    if mismatched := with_another_tokenizer(planned, beside):
        raise MixtureError(
            f"“{mismatched[0].model}” has another tokenizer than “{spec.mixture}”, so it cannot read the same prompts.",
            "Leave it out.",
        )
    if "cluster" in spec.routings and (planned.clusters is None or not isinstance(planned.gate, DistanceConfig)):
        raise BadSpecError(
            [
                f"Cluster routing needs a mixture with a cluster gate and only experts of its clusters, unlike "
                f"“{spec.mixture}”."
            ],
            "Choose a mixture made by workbench train clusters, or other routings.",
        )
    others = {expert.id: expert for single in beside for expert in single.experts if expert.id not in planned.names}
    mixture_id = mixture_row(session, spec.mixture).id
    return ClassificationInputs(mixture_id, planned, tuple(others.values()), describe_clusters(session, planned.gate))


def _score(work: Work, inputs: ClassificationInputs, prompt_sets: Sequence[_PromptSet]) -> Events[dict[str, Path]]:
    """Returns the folders of all answers by key. One base is in memory at a time, and only if an answer is missing."""
    folders: dict[str, Path] = {}
    done, total = 0, len(inputs.names) * sum(prompts.num_prompts for prompts in prompt_sets)
    for base, experts in inputs.by_base().items():
        model = cache(partial(load_experts, work, base, experts, _LEAST_BLOCK))
        for prompts in prompt_sets:
            episode = cache(prompts.make)  # built when the first expert needs it
            for expert_id in experts:
                start = Progress(done, total, "prompts", f"scoring {prompts.task.name}")
                fill = partial(_fill, model, expert_id, episode, prompts.options, start)
                key = prompts.key(expert_id)
                folders[key] = yield from work.cached_artifact(key, artifact_kinds.ANSWERS, fill)
                done += prompts.num_prompts
    return folders


def _fill(
    model: Callable[[], ExpertModel],
    expert_id: str,
    episode: Callable[[], Episode],
    options: Sequence[Ids],
    start: Progress,
    folder: Path,
) -> Iterator[Event]:
    """Writes one expert's scores [N, O, T] for each part of an episode."""
    done = start.done
    for part, prompts in episode().parts.items():
        for update in score_options(model(), expert_id, prompts, options):
            if isinstance(update, Progress):
                yield replace(start, done=done + update.done)
            else:
                np.save(folder / f"{part}.npy", update.numpy())
        done += len(prompts)


class _Nearness:
    """Cluster routing: Eq. 3 on full prompts (demonstrations and example); None without clusters."""

    def __init__(self, planned: GenerationPlan, tokenizer: Tokenizer, device: str) -> None:
        self._plan, self._tokenizer = planned, tokenizer
        self._clusters, self._clustering = planned.clusters, None
        if planned.route is not None and self._clusters is not None and isinstance(planned.gate, DistanceConfig):
            self._config: DistanceConfig = planned.gate
            self._clustering = open_clustering(planned.route.clustering, planned.route.seed, device)

    def squared_distances(self, prompts: Sequence[Prompt]) -> Tensor | None:
        """The squared distances [E, N] of prompts to each expert's cluster."""
        if self._clustering is None or self._clusters is None:
            return None
        texts = [self._tokenizer.decode(prompt.ids) for prompt in prompts]
        squared_NK = self._clustering.place(texts).squared_distances_NK
        return torch.from_numpy(squared_NK[:, list(self._clusters)].T)

    def log_weights(self, squared_EN: Tensor, top_k: int | None) -> Tensor:
        """Eq. 3 with the mixture's temperature and weights, and this top-k."""
        assert self._clusters is not None
        gate = ClusterGate(
            [expert.weight for expert in self._plan.experts],
            Routing(self._clusters),
            temperature=self._config.temperature,
            distance_power=self._config.distance_power,
            top_k=top_k,
        )
        return gate.log_weights_of(squared_EN)


def _measure(
    spec: Classify, inputs: ClassificationInputs, prompts: _PromptSet, folders: Mapping[str, Path], nearness: _Nearness
) -> MeasuredEpisode:
    episode = prompts.make()
    answered = partial(_read_answers, spec, prompts, episode, folders)
    squared_EN = nearness.squared_distances(episode.test)
    accuracies = compare_routings(
        answered([expert.id for expert in inputs.plan.experts]),
        spec.routings or [name for name in ROUTINGS if name != "cluster" or squared_EN is not None],
        spec.top_k,
        newest_weight=spec.newest_weight,
        nearness=None if squared_EN is None else partial(nearness.log_weights, squared_EN),
    )
    beside = [expert.id for expert in inputs.beside]
    others = answered(beside).test.is_right_EN.mean(1).tolist() if beside else []
    shares_E = None if squared_EN is None else nearness.log_weights(squared_EN, None).exp().mean(1).tolist()
    return MeasuredEpisode(prompts, accuracies, others, shares_E)


def _read_answers(
    spec: Classify, prompts: _PromptSet, episode: Episode, folders: Mapping[str, Path], experts: Sequence[str]
) -> Answered:
    lengths_O = torch.tensor([len(option) for option in prompts.options])

    def answers(part: str) -> Answers:
        files = [folders[prompts.key(expert_id)] / f"{part}.npy" for expert_id in experts]
        scores_ENOT = torch.from_numpy(np.stack([np.load(file, allow_pickle=False) for file in files]))
        labels_N = torch.tensor([prompt.label for prompt in episode.parts[part]])
        return Answers(scores_ENOT, labels_N, divisors(lengths_O, spec.normalise))

    return Answered(answers("test"), answers("permuted"), answers("validation"))


@dataclass(frozen=True)
class MeasuredEpisode:
    """One task and seed: the mixture's accuracies, those of other experts, and the mean cluster weights [E]."""

    prompts: _PromptSet
    accuracies: Accuracies
    beside: list[float]
    shares_E: list[float] | None


def findings(spec: Classify, inputs: ClassificationInputs, measured: Sequence[MeasuredEpisode]) -> dict[str, Any]:
    """The findings as JSON."""
    planned = inputs.plan
    by_task: dict[str, list[MeasuredEpisode]] = {}
    for episode in measured:
        by_task.setdefault(episode.prompts.task.name, []).append(episode)
    # “way” is a stored name: how experts are chosen.
    chances = {task: [1 / len(seed.prompts.task.labels) for seed in seeds] for task, seeds in by_task.items()}
    rows = [_row({"way": "chance"}, chances)]
    for number, name in enumerate(inputs.names.values()):
        how = "alone" if number < len(planned.experts) else "beside"
        accuracies = {
            task: [[*seed.accuracies.by_expert, *seed.beside][number] for seed in seeds]
            for task, seeds in by_task.items()
        }
        rows.append(_row({"way": how, "expert": name}, accuracies))
    for routing in measured[0].accuracies.by_variant:
        shares = {task: [seed.accuracies.by_variant[routing] for seed in seeds] for task, seeds in by_task.items()}
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
        "tasks": [_task_json(name, seeds, inputs) for name, seeds in by_task.items()],
    }
    return {**report, "notes": _notes(report), "sentence": _sentence(report)}


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


def _task_json(name: str, seeds: Sequence[MeasuredEpisode], inputs: ClassificationInputs) -> dict[str, Any]:
    """One task as JSON: sizes, prompts that were cut, and the clusters with the largest weights (table 10)."""
    task = seeds[0].prompts.task
    return {
        "name": name,
        "labels": [label[:_CUT_TO] for label in task.labels],
        "words": [word[:_CUT_TO] for word in task.label_words],
        "template": task.template,
        "num_train": len(task.train),
        "num_test": seeds[0].prompts.num_tests,
        "has_validation": bool(task.validation),
        "num_prompts": sum(seed.prompts.num_prompts for seed in seeds),
        "num_cut": sum(seed.prompts.num_cut for seed in seeds),
        "mean_shots": fmean(seed.prompts.mean_shots for seed in seeds),  # every seed has the same test examples
        "clusters": list(_clusters(seeds, inputs)),
    }


def _clusters(seeds: Sequence[MeasuredEpisode], inputs: ClassificationInputs) -> Iterator[dict[str, Any]]:
    weighed = [seed.shares_E for seed in seeds if seed.shares_E is not None]
    clusters = inputs.plan.clusters
    if not weighed or clusters is None:
        return
    means_E = [fmean(of_expert) for of_expert in zip(*weighed, strict=True)]
    for index in sorted(range(len(means_E)), key=lambda index: -means_E[index])[:_TOP_CLUSTERS]:
        label = inputs.labels[clusters[index]]
        yield {
            "expert": inputs.plan.experts[index].name,
            "share": means_E[index],
            "number": clusters[index],
            "cluster": label.name,
            "terms": list(label.terms),
        }


def _notes(report: Mapping[str, Any]) -> list[str]:
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
    tasks, seeds = pluralize(len(report["tasks"]), "task"), pluralize(report["num_seeds"], "seed")
    return (
        f"{report['num_shots']} demonstrations, {tasks}, {seeds}: {best['way']} routing with {kept} gets "
        f"{best['average']['mean']:.1%} correct, the best of all routings; equal "
        f"weights {equal['average']['mean']:.1%}, "
        f"chance {chance['average']['mean']:.1%}."
    )
