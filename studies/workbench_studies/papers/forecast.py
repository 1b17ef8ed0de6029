"""What a replication will take, and what it cannot test, before its first job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from engine.methods.registry import get_method
from engine.text.formats import read_records
from engine.text.split import TEST_SHARE
from engine.text.streams import Record, TextFile, find_files
from workbench.kinds.analysis import Evaluate
from workbench.kinds.data import ImportCorpus
from workbench.kinds.training.mixtures import MakeMixture
from workbench.kinds.training.train_joint import TrainJoint
from workbench.specs.requests import PlanStep
from workbench_studies.core.pace import Pace
from workbench_studies.core.sizes import ENOUGH_DOCUMENTS
from workbench_studies.core.spec import Replicate
from workbench_studies.core.verdicts import NO_SCORES
from workbench_studies.papers.catalog import PAPERS, plan
from workbench_studies.papers.plan_steps import cost_of_token, tokens_per_step

_PARAMETER_BYTES = 4
_SCORE_BYTES = 8  # a token's log-likelihood, whether it was right, and its place
_EXPANDED = 5  # times the size of a compressed file, about


@dataclass(frozen=True)
class UntestableClaim:
    where: str
    sentence: str
    why: str


@dataclass(frozen=True)
class FewDocuments:
    """A novel domain with fewer test documents to read than its intervals should have, and about how many."""

    domain: str
    about: int


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
    untestable: list[UntestableClaim]
    few_documents: list[FewDocuments] = field(default_factory=list)


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
        UntestableClaim(verdict.claim.where, verdict.claim.sentence, verdict.why)
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


def _few_documents(spec: Replicate) -> Iterator[FewDocuments]:
    """The novel domains whose files have too few documents, or that have too few blocks to score."""
    blocks = spec.budget.test_tokens // spec.budget.block_size
    imported = {text.name: text for text in spec.imports}
    for domain in spec.novel:
        about = blocks
        if domain in imported:
            about = min(blocks, round(TEST_SHARE * _num_documents(imported[domain])))
        if about < ENOUGH_DOCUMENTS:
            yield FewDocuments(domain, about)


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
    imported = [text for text in spec.imports if any(step.spec == text for step in waiting)]
    texts = sum(_text_bytes(Path(text.path), text.max_bytes) for text in imported)
    return texts + (models + 3) * model + _SCORE_BYTES * scored


def _text_bytes(path: Path, max_bytes: int | None) -> int:
    size = path.stat().st_size * (_EXPANDED if path.suffix in (".xz", ".gz", ".bz2", ".zst") else 1)
    return size if max_bytes is None else min(size, max_bytes)
