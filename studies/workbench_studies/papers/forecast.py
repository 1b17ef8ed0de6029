"""What a replication will take at the pace of this machine, and what it cannot test, before its first job."""

from __future__ import annotations

import math
import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.config import ModelConfig
from engine.device import choose_device, python_command, python_environment
from engine.methods.lora.descriptor import adapter_size
from engine.methods.lora.descriptor import training_flops as lora_flops
from engine.methods.mode.flops import training_flops as mode_flops
from engine.methods.registry import get_method
from engine.models.flops import Shape, training_flops
from engine.text.formats import read_records
from engine.text.split import TEST_SHARE
from engine.text.streams import Record, TextFile, find_files
from workbench.kinds.analysis import Evaluate
from workbench.kinds.data import ImportCorpus
from workbench.kinds.training.mixtures import MakeMixture
from workbench.kinds.training.mode import ComposeMode, TrainMode
from workbench.kinds.training.train_joint import TrainJoint
from workbench.specs.requests import PlanStep
from workbench_studies.core.spec import ENOUGH_DOCUMENTS, Replicate, tokens_per_step
from workbench_studies.core.verdicts import NO_SCORES
from workbench_studies.mode.arms import ReplicateMode
from workbench_studies.papers.catalog import PAPERS, plan

_SECONDS = 1.0  # of each measurement, or one update where that takes longer
_MOST_TOKENS = 2048  # of one update here


@dataclass(frozen=True)
class Pace:
    """Tokens per second of computing (on a CPU, of its time), seconds to start a job, and the model's parameters."""

    trained: float
    scored: float
    start_seconds: float
    num_parameters: int
    device: str


def measure_pace(config: ModelConfig, vocab_size: int, block_size: int, device: str = "auto") -> Pace:
    """Trains and scores a fresh model of this shape on random tokens for some seconds."""
    import torch

    from engine.models.families import fresh_model

    place = choose_device(device)
    model = fresh_model(config, vocab_size).to(place)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)
    tokens_BT = torch.randint(vocab_size, (max(1, _MOST_TOKENS // block_size), block_size), device=place)

    def train() -> None:
        model(input_ids=tokens_BT, labels=tokens_BT).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    @torch.no_grad()
    def score() -> None:
        model(input_ids=tokens_BT, labels=tokens_BT).loss.item()

    clock = time.process_time if place.type == "cpu" else time.perf_counter
    rates = [tokens_BT.numel() / _seconds(work, clock) for work in (train, score)]
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    return Pace(rates[0], rates[1], _start_seconds(), num_parameters, str(place))


def _seconds(work: Callable[[], Any], clock: Callable[[], float]) -> float:
    """The mean time of one call, without the first, which prepares memory."""
    work()
    began, calls = clock(), 0
    while not calls or clock() - began < _SECONDS:
        work()
        calls += 1
    return (clock() - began) / calls


def _start_seconds() -> float:
    """The processor's time that a fresh process takes to load the libraries, as every job does."""
    import resource

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        python_command("transformers.models.llama.modeling_llama"),
        env={**os.environ, **python_environment()},
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


_PARAMETER_BYTES = 4
_SCORE_BYTES = 8  # a token's log-likelihood, whether it was right, and its place
_EXPANDED = 5  # times the size of a compressed file, about
_COMPRESSED = (".xz", ".gz", ".bz2", ".zst")


@dataclass(frozen=True)
class ReplicationForecast:
    """Jobs by kind, those that are done, the time and disk that the others take, and the claims left untested."""

    name: str
    jobs: Mapping[str, int]
    num_jobs: int
    num_done: int
    trained_tokens: int
    scored_tokens: int
    seconds: float
    how: str
    disk_bytes: int
    num_claims: int
    untestable: list[dict[str, str]]  # where it stands, its sentence, and why
    few_documents: list[dict[str, Any]]  # novel domains with fewer to read than intervals should have: about how many


def forecast(spec: Replicate, pace: Pace, done: Collection[str] = ()) -> ReplicationForecast:
    """The time of a plan's steps at a measured pace; `done` holds the keys of steps that need not run."""
    steps = plan(spec)
    waiting = [step for step in steps if step.key not in done]
    members, trained = _members(steps), sum(map(_training_tokens, waiting))
    scored = sum(_scoring_tokens(step, members) for step in waiting)
    weighed = sum(_training_tokens(step) * cost_of_token(step, spec) for step in waiting)
    seconds = weighed / pace.trained + scored / pace.scored + len(waiting) * pace.start_seconds
    paper = PAPERS[spec.paper]
    verdicts = paper.judge(paper.measurements(spec))  # before anything was measured: scores decide the others
    untestable = [
        {"where": verdict.claim.where, "sentence": verdict.claim.sentence, "why": verdict.why}
        for verdict in verdicts
        if verdict.why != NO_SCORES
    ]
    return ReplicationForecast(
        spec.name,
        dict(Counter(step.spec.model_dump()["kind"] for step in waiting)),
        len(steps),
        len(steps) - len(waiting),
        trained,
        scored,
        seconds,
        _how(pace),
        _disk(spec, waiting, pace, scored),
        len(verdicts),
        untestable,
        list(_few_documents(spec)),
    )


def _how(pace: Pace) -> str:
    return (
        f"Measured now on {pace.device} with a fresh model of this size ({pace.num_parameters:,} parameters): "
        f"{pace.trained:,.0f} tokens/s in training, {pace.scored:,.0f} tokens/s in scoring, {pace.start_seconds:.1f} s "
        "to start a job. A training next to a frozen model counts by its operations. Clusters, layers of experts in "
        "scoring, and the report itself are not counted."
    )


def _training_tokens(step: PlanStep) -> int:
    training = getattr(step.spec, "training", None)
    return training.max_steps * tokens_per_step(step) if training is not None else 0


def _scoring_tokens(step: PlanStep, members: Mapping[str, int]) -> int:
    """Tokens times experts that a step scores: held-out text, or the evaluations during a training."""
    if isinstance(step.spec, Evaluate):
        experts = len(step.spec.experts) or members.get(step.spec.mixture, 1)
        return experts * len(step.spec.domains) * (step.spec.max_tokens or 0)
    training = getattr(step.spec, "training", None)
    if training is None or not training.evaluate_every:
        return 0
    domains = len(getattr(step.spec, "domains", ())) or 1 + len(getattr(step.spec, "watch", ()))
    times = training.max_steps // training.evaluate_every
    return int(times * domains * training.evaluation_blocks * training.block_size)


def cost_of_token(step: PlanStep, spec: Replicate) -> float:
    """Operations to train on a token, over those of a training in which all of the size's model learns.

    What is added to a frozen model is counted: layers of MoDE's experts, and what a loss goes back through.
    """
    shape, context = Shape.fresh(spec.budget.shape, spec.budget.vocab_size), spec.budget.block_size
    full = training_flops(shape, context)
    match step.spec:
        case TrainMode(shape=config, num_parts=number):
            return mode_flops(shape, context, [config] * number) / full
        case ComposeMode(experts=experts, frozen=frozen) if isinstance(spec, ReplicateMode):
            parts = [spec.budget.mode] * len(experts)
            return mode_flops(shape, context, parts, "gates" if frozen else "experts") / full
        case TrainJoint(method=method, lora=config) if get_method(method).base_is_frozen:
            return lora_flops(shape, context, adapter_size(shape, config)) / full
    return 1.0


def _members(steps: Collection[PlanStep]) -> dict[str, int]:
    """The number of experts of every mixture that the plan makes."""
    members: dict[str, int] = {}
    for step in steps:
        match step.spec:
            case TrainJoint(name=name, method=method, domains=domains):
                members[name] = 1 if get_method(method).only_expert else len(domains)
            case MakeMixture(name=name, experts=experts):
                members[name] = len(experts)
    return members


def _few_documents(spec: Replicate) -> Iterator[dict[str, Any]]:
    """The novel domains whose files have too few documents, or that have too few blocks to score."""
    blocks = spec.budget.test_tokens // spec.budget.block_size
    imported = {text.name: text for text in spec.imports}
    for domain in spec.novel:
        about = blocks
        if domain in imported:
            about = min(blocks, round(TEST_SHARE * _num_documents(imported[domain])))
        if about < ENOUGH_DOCUMENTS:
            yield {"domain": domain, "about": about}


def _num_documents(text: ImportCorpus) -> int:
    """The documents of a file up to its share of bytes, each as many as it is cut into."""
    number = num_bytes = 0
    files = (file for file in find_files(Path(text.path)) if isinstance(file, TextFile))
    for record in (one for file in files for one in read_records(file, (text.text_field,))):
        document = record.values.get(text.text_field) if isinstance(record, Record) else None
        if not isinstance(document, str) or not document:
            continue
        number += -(-len(document) // text.piece_length) if text.piece_length else 1
        num_bytes += len(document.encode())
        if text.max_bytes is not None and num_bytes >= text.max_bytes:
            break
    return number


def _disk(spec: Replicate, waiting: Collection[PlanStep], pace: Pace, scored: int) -> int:
    """Text, one model for each expert that is trained, the largest checkpoint, and scores."""
    members = _members(waiting)
    models = sum(members.get(getattr(step.spec, "name", ""), 1) for step in waiting if _training_tokens(step))
    model = _PARAMETER_BYTES * pace.num_parameters
    texts = 0.0
    for text in (one for one in spec.imports if any(step.spec == one for step in waiting)):
        path, most = Path(text.path), math.inf if text.max_bytes is None else text.max_bytes
        texts += min(most, path.stat().st_size * (_EXPANDED if path.suffix in _COMPRESSED else 1))
    return int(texts) + (models + 3) * model + _SCORE_BYTES * scored
