"""Few-shot classification (C-BTM §5 and A.7): every expert scores every option once, then each routing answers.

An expert's scores for the prompts of a task and seed are an artifact with a key in the registry: another temperature,
top-k or mixture of the same experts needs no model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sqlalchemy.orm import Session
from torch import Tensor

from engine.analysis.fewshot.prompts import Episode, Ids, Prompt, Shots, encode_options, make_episode, max_prompt_tokens
from engine.analysis.fewshot.routing import ROUTINGS, Answered, Answers, compare_routings, divisors
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
from engine.text.tokenizer import Tokenizer, load_tokenizer
from jobs.attempt.work import Register, Work
from jobs.kinds.shared.artifact_cache import cached_artifact
from jobs.kinds.shared.classification_report import EpisodeFacts, Measured, findings
from jobs.kinds.shared.environment import report_reproducible_from
from jobs.kinds.shared.model_loading import load_experts
from workbench.errors import BadSpecError
from workbench.kinds.analysis import Classify
from workbench.registry.clusters.cluster_routing import ClusterLabel, describe_clusters
from workbench.registry.experts import with_another_tokenizer
from workbench.registry.mixtures import mixture_row
from workbench.registry.reports import register_report
from workbench.requests.planning import plan
from workbench.store import artifact_kinds
from workbench.store.artifacts import find_artifact

KIND = "classification"
_LEAST_BLOCK = 2  # the shortest context, in tokens, that a model must support


@dataclass(frozen=True)
class _Inputs:
    """The mixture, other experts to compare with, and the terms of the mixture's clusters by number."""

    mixture_id: str
    plan: GenerationPlan
    beside: tuple[PlannedExpert, ...]
    words: Mapping[int, ClusterLabel]

    @cached_property
    def names(self) -> dict[str, str]:
        """The names of all experts by id, those of the mixture first."""
        return {one.id: one.name for one in (*self.plan.experts, *self.beside)}

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
    facts: EpisodeFacts

    @classmethod
    def of(cls, task: Task, options: tuple[Ids, ...], make: Callable[[], Episode]) -> _PromptSet:
        episode, digest = make(), hashlib.sha256(repr(options).encode())
        for part, prompts in episode.parts.items():
            digest.update(repr((part, [prompt.ids for prompt in prompts])).encode())
        return cls(task, options, make, digest.hexdigest(), EpisodeFacts.of(episode))

    def key(self, expert_id: str) -> str:
        """The key of an expert's answers."""
        return f"answers:{expert_id}:{self.sha256}"


def run(work: Work, spec: Classify) -> Generator[Event, None, Register]:
    """Scores what is missing, base by base, then compares the routings; the report is written at the end."""
    with work.reading() as session:
        inputs = _read(session, work, spec)
    tasks = read_tasks(Path(spec.path))
    inputs.plan.base.check()
    tokenizer = load_tokenizer(inputs.plan.base.folder)
    prompt_sets = list(_prompt_sets(spec, inputs, tasks, tokenizer))
    folders = yield from _score(work, inputs, prompt_sets)
    nearness = _Nearness(inputs.plan, tokenizer, work.settings.device)
    measured = []
    for number, one in enumerate(prompt_sets):
        measured.append(_measure(spec, inputs, one, folders, nearness))
        yield Progress(number + 1, len(prompt_sets), "comparisons")
    report_findings = findings(spec, inputs.plan, inputs.names, measured, inputs.words)
    report_findings["reproducible_from"] = report_reproducible_from(work)

    def register(session: Session) -> dict[str, Any]:
        title = f"Few-shot classification by {spec.mixture}"
        report = register_report(session, KIND, title, report_findings, about_id=inputs.mixture_id, job_id=work.job_id)
        return {"mixture": spec.mixture, "report": report.id, "sentence": report_findings["sentence"]}

    return register


def _read(session: Session, work: Work, spec: Classify) -> _Inputs:
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
    members = {one.id for one in planned.experts}
    others = {one.id: one for single in beside for one in single.experts if one.id not in members}
    mixture_id = mixture_row(session, spec.mixture).id
    return _Inputs(mixture_id, planned, tuple(others.values()), describe_clusters(session, planned.gate))


def _prompt_sets(spec: Classify, inputs: _Inputs, tasks: Sequence[Task], tokenizer: Tokenizer) -> Iterator[_PromptSet]:
    """Yields one prompt set for every task and seed."""
    max_positions = min(read_limits(base.folder).max_positions for base in inputs.by_base())
    shots = Shots(spec.num_shots, spec.num_validation, spec.max_examples)
    for task in tasks:
        options = encode_options(task, tokenizer)
        max_tokens = max_prompt_tokens(task, options, max_positions)
        for seed in range(spec.num_seeds):
            yield _PromptSet.of(task, options, partial(make_episode, task, tokenizer, shots, seed, max_tokens))


def _score(work: Work, inputs: _Inputs, prompt_sets: Sequence[_PromptSet]) -> Generator[Event, None, dict[str, Path]]:
    """Returns the folders of all answers by key. One base is in memory at a time."""
    folders: dict[str, Path] = {}
    of_expert = sum(one.facts.num_prompts for one in prompt_sets)
    start = Progress(0, len(inputs.names) * of_expert, "prompts")
    for base, experts in inputs.by_base().items():
        folders |= yield from _score_experts_of(work, base, experts, prompt_sets, start)
        start = replace(start, done=start.done + len(experts) * of_expert)
    return folders


def _score_experts_of(
    work: Work,
    base: ArtifactRef,
    experts: Mapping[str, ArtifactRef],
    prompt_sets: Sequence[_PromptSet],
    start: Progress,
) -> Generator[Event, None, dict[str, Path]]:
    """Returns the folders for the experts of one base. The model is loaded only if an answer is missing."""
    model = load_experts(work, base, experts, _LEAST_BLOCK) if _is_missing(work, experts, prompt_sets) else None
    folders: dict[str, Path] = {}
    for one in prompt_sets:
        episode = cache(one.make)  # built when the first expert needs it
        for expert_id in experts:
            progress = replace(start, note=f"scoring {one.task.name}")
            fill = partial(_fill, model, expert_id, episode, one.options, progress)
            folders[one.key(expert_id)] = yield from cached_artifact(
                work, one.key(expert_id), artifact_kinds.ANSWERS, fill
            )
            start = replace(start, done=start.done + one.facts.num_prompts)
    return folders


def _is_missing(work: Work, experts: Mapping[str, ArtifactRef], prompt_sets: Sequence[_PromptSet]) -> bool:
    with work.reading() as session:
        return any(find_artifact(session, one.key(expert_id)) is None for expert_id in experts for one in prompt_sets)


def _fill(
    model: ExpertModel | None,
    expert_id: str,
    episode: Callable[[], Episode],
    options: Sequence[Ids],
    start: Progress,
    folder: Path,
) -> Iterator[Event]:
    """Writes one expert's scores [N, O, T] for each part of an episode."""
    assert model is not None, "no scores were missing a moment ago"
    done = start.done
    for part, prompts in episode().parts.items():
        for update in score_options(model, expert_id, prompts, options):
            if isinstance(update, Progress):
                yield Progress(done + update.done, start.total, start.unit, start.note)
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
    spec: Classify, inputs: _Inputs, one: _PromptSet, folders: Mapping[str, Path], nearness: _Nearness
) -> Measured:
    episode = one.make()
    answered = partial(_answered, spec, one, episode, folders)
    squared_EN = nearness.squared_distances(episode.test)
    routings = spec.routings or [name for name in ROUTINGS if name != "cluster" or squared_EN is not None]
    accuracies = compare_routings(
        answered([expert.id for expert in inputs.plan.experts]),
        routings,
        spec.top_k,
        newest_weight=spec.newest_weight,
        nearness=None if squared_EN is None else partial(nearness.log_weights, squared_EN),
    )
    beside = [expert.id for expert in inputs.beside]
    others = answered(beside).test.is_right_EN.mean(1).tolist() if beside else []
    shares_E = None if squared_EN is None else nearness.log_weights(squared_EN, None).exp().mean(1).tolist()
    return Measured(one.task, one.facts, accuracies, others, shares_E)


def _answered(
    spec: Classify, one: _PromptSet, episode: Episode, folders: Mapping[str, Path], experts: Sequence[str]
) -> Answered:
    lengths_O = torch.tensor([len(option) for option in one.options])

    def answers(part: str) -> Answers:
        files = [folders[one.key(expert_id)] / f"{part}.npy" for expert_id in experts]
        scores_ENOT = torch.from_numpy(np.stack([np.load(file, allow_pickle=False) for file in files]))
        labels_N = torch.tensor([prompt.label for prompt in episode.parts[part]])
        return Answers(scores_ENOT, labels_N, divisors(lengths_O, spec.normalise))

    return Answered(answers("test"), answers("permuted"), answers("validation"))
