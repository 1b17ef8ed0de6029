"""The curve that a training is read against: that of its parent, or of a dense model, on the same held-out blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.methods.registry import method_of
from workbench.errors import WorkbenchError
from workbench.job_records.jobs import events, metrics
from workbench.kinds.parse_spec import parse_spec
from workbench.registry.cards import JobCard, MetricPoint
from workbench.registry.mixtures import mixture_row
from workbench.registry.seeds import seed_row
from workbench.schema.job_states import ACTIVE, PARENT
from workbench.schema.tables import Domain, Expert, Job

_PREFIX = "dev_loss/"
_SAME = ("block_size", "evaluation_blocks", "separate_conversations")  # settings that choose what is measured


@dataclass(frozen=True)
class TrainingBaseline:
    """The held-out losses (nats per token) of another training by domain, or why there are none."""

    name: str = ""  # of the expert, with what it is to this training
    points: tuple[MetricPoint, ...] = ()  # each named by its domain
    why_not: str = ""


@dataclass(frozen=True)
class _Training:
    """What a job's spec says of its evaluations."""

    domains: tuple[str, ...]
    config: Any


def training_baseline(session: Session, job: JobCard) -> TrainingBaseline:
    """The curve of the parent on the domains of this training; without one, that of a dense model.

    Only curves of the same text in the same blocks are comparable. Empty for a job that trains nothing.
    """
    training = _training(job.spec)
    if training is None:
        return TrainingBaseline()
    parent = _parent(session, job)
    reasons = []
    for words, expert in [*([("parent", parent)] if parent else []), *_dense_models(session, job)]:
        curve = _curve(session, job, training, expert)
        if not isinstance(curve, str):
            return TrainingBaseline(f"{words} {expert.name}", tuple(curve))
        reasons.append(curve)
    return TrainingBaseline(why_not=reasons[0] if reasons else _nothing_to_compare(job))


def _nothing_to_compare(job: JobCard) -> str:
    if "mixture" in job.spec and job.spec.get("parent") is None and job.state in ACTIVE:
        return "The parent is chosen when the training starts."
    return "There is no parent and no dense model of the same tokenizer: train one with the method dense."


def _training(spec: dict[str, Any]) -> _Training | None:
    try:
        parsed = parse_spec(spec)
    except WorkbenchError:  # the package of an old job was uninstalled
        return None
    config = getattr(parsed, "training", None)
    domains = getattr(parsed, "domains", None) or list(filter(None, [getattr(parsed, "domain", None)]))
    return _Training(tuple(domains), config) if config is not None and domains else None


def _parent(session: Session, job: JobCard) -> Expert | None:
    """The expert whose copy this job trains; None for other trainings, and until it is chosen."""
    recorded = (event.data for event in events(session, job.id) if event.kind == PARENT)
    if data := next(filter(None, recorded), None):
        return session.get(Expert, data["parent"])
    name = job.result.get("parent") or job.spec.get("parent")
    return session.scalar(select(Expert).where(Expert.name == name)) if name else None


def _dense_models(session: Session, job: JobCard) -> Iterator[tuple[str, Expert]]:
    """Models that all their domains trained in full, with the tokenizer of this training; the newest first."""
    tokenizer = _tokenizer(session, job)
    rows = select(Expert).where(Expert.tokenizer_sha256 == tokenizer, Expert.job_id != job.id)
    for row in session.scalars(rows.order_by(Expert.created_at.desc(), Expert.name)):
        method = method_of(row.method)
        if method.only_expert and method.is_trainable and method.is_full_model and not method.base_is_frozen:
            yield "dense model", row


def _tokenizer(session: Session, job: JobCard) -> str | None:
    try:
        if seed := job.spec.get("seed_model"):
            return seed_row(session, seed).tokenizer_sha256
        return mixture_row(session, job.spec["mixture"]).members[0].expert.tokenizer_sha256
    except (WorkbenchError, KeyError, IndexError):
        return None


def _curve(session: Session, job: JobCard, training: _Training, expert: Expert) -> list[MetricPoint] | str:
    """The comparable losses of the training that made an expert, or a sentence that says why there are none."""
    other_job = session.get(Job, expert.job_id) if expert.job_id else None
    other = _training(other_job.spec) if other_job else None
    if other_job is None or other is None:
        return f"{expert.name} was not trained here, so it has no curve."
    for setting in _SAME:
        theirs, ours = getattr(other.config, setting), getattr(training.config, setting)
        if theirs != ours:
            return f"{expert.name} was evaluated with {setting} = {theirs}, this one with {ours}."
    domains = _unchanged(session, [*training.domains], min(other_job.created_at, job.created_at))
    points = [
        MetricPoint(name=domain, step=point.step, value=point.value)
        for domain in domains
        if domain in other.domains
        for point in metrics(session, other_job.id, f"{_PREFIX}{domain}")
    ]
    if not points:
        return f"{expert.name} was not evaluated on the held-out text of this training while it was trained."
    return points


def _unchanged(session: Session, names: Sequence[str], since: float) -> list[str]:
    """The domains that hold the text that they held then: a domain's text never changes, but its name can be reused."""
    rows = select(Domain.name).where(Domain.name.in_(names), Domain.created_at <= since)
    present = set(session.scalars(rows))
    return [name for name in names if name in present]
