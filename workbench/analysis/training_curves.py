"""Curves of trainings: of a job, of the expert that it trained, and what to compare them with."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.events import BACKBONE
from engine.methods.registry import get_method, method_of
from workbench.answers.base import Answer
from workbench.answers.cards import JobCard, MetricPoint
from workbench.errors import WorkbenchError
from workbench.job_records.jobs import get_job, metrics, newest_event
from workbench.job_records.preconditions import creates
from workbench.kinds.kind import parse_spec
from workbench.kinds.training.method_settings import MethodSettings
from workbench.registry.experts import domains_of
from workbench.registry.mixtures import mixture_row
from workbench.registry.seeds import seed_row
from workbench.schema.job_states import ACTIVE, PARENT, PARTS, UNFINISHED
from workbench.schema.job_tables import Job
from workbench.schema.names import find_row, unknown_name
from workbench.schema.tables import Domain, Expert


class DomainHistory(Answer):
    """The evaluations of a training on one domain, step by step."""

    domain: str
    retained: bool = Field(description="Evaluated, but not trained on.")
    steps: list[int]
    losses: list[float] = Field(description="Held-out loss (nats per token).")
    gates: list[dict[str, float]] = Field(
        description="Mean weights of backbone and parts; empty for experts without parts."
    )


class TrainingHistory(Answer):
    """How the training of an expert went."""

    expert: str
    job: str
    state: str
    domains: list[DomainHistory]


def training_history(session: Session, expert: str) -> TrainingHistory:
    """The evaluations of an expert's training on each domain; it may still be in training.

    Where several were trained at once, each was evaluated on its own domains only. Raises NotFoundError.
    """
    job = _job_of(session, expert)
    spec = parse_spec(job.spec)
    names = gate_names(session, job.id)
    losses, gates = defaultdict[str, dict[int, float]](dict), defaultdict[str, dict[int, dict[str, float]]](dict)
    for point in metrics(session, job.id):
        kind, _, rest = point.name.partition("/")
        if kind == "dev_loss" and rest:
            losses[rest][point.step] = point.value
        elif kind == "gate":
            number, _, domain = rest.partition("/")
            gates[domain].setdefault(point.step, {})[names[int(number)]] = point.value
    others = _domains_of_other_experts(session, expert, spec)
    retained = set(getattr(spec, "retain", ())) | set(getattr(spec, "watch", ()))
    domains = [
        DomainHistory(
            domain=name,
            retained=name in retained,
            steps=list(by_step),
            losses=list(by_step.values()),
            gates=[gates[name].get(step, {}) for step in by_step],
        )
        for name, by_step in losses.items()
        if name not in others
    ]
    return TrainingHistory(expert=expert, job=job.id, state=job.state, domains=domains)


def _domains_of_other_experts(session: Session, expert: str, spec: Any) -> set[str]:
    """The domains of a joint training whose losses are of other experts; none where one expert is trained."""
    experts = getattr(spec, "experts", None)  # of a joint training: the domains of each
    if not isinstance(experts, Mapping) or len(experts) == 1:
        return set()
    row = find_row(session, Expert, expert)
    return set(spec.domains) - set(experts[expert] if row is None else domains_of(row))


def count_retained(session: Session, experts: Sequence[str]) -> Counter[str]:
    """The number of these experts trained with each retained domain (`retain`)."""
    of_experts = select(Job).join(Expert, Expert.job_id == Job.id).where(Expert.name.in_(experts))
    return Counter(name for job in session.scalars(of_experts) for name in getattr(parse_spec(job.spec), "retain", ()))


def _job_of(session: Session, expert: str) -> Job:
    row = find_row(session, Expert, expert)
    if row is not None and row.job_id is not None and (job := session.get(Job, row.job_id)):
        return job
    unfinished = select(Job).where(Job.state.in_(UNFINISHED)).order_by(Job.created_at.desc())
    for job in session.scalars(unfinished):
        if ("expert", expert) in creates(parse_spec(job.spec)):
            return job
    raise unknown_name(session, Expert, expert)


def gate_names(session: Session, job_id: str) -> list[str]:
    """The names behind a job's gate weights, the backbone first; none if the job trains no parts.

    The parts of a composition from before their names were written down have only numbers, until it is done.
    """
    job = session.get_one(Job, job_id)
    spec = parse_spec(job.spec)
    parts = getattr(spec, "parts", None) or (job.result or {}).get("parts")
    if not parts and (recorded := newest_event(session, job_id, PARTS)) is not None:
        parts = (recorded.data or {}).get("parts")
    if not parts:
        numbers = (
            int(metric.name.split("/")[1]) for metric in metrics(session, job_id) if metric.name.startswith("gate/")
        )
        parts = [f"part {number}" for number in range(1, max(numbers, default=0) + 1)]
    return [BACKBONE, *parts] if parts else []


class MetricValue(Answer):
    """One point of a curve."""

    metric: str = Field(description="Such as loss, dev_loss/DOMAIN (held-out) or gate/PART/DOMAIN.")
    step: int = Field(description="Optimizer updates so far.")
    value: float
    unit: str = Field(description="Unit of the value, such as nats per token; empty: none.")


class JobMetrics(Answer):
    """Points of a job's curves, and the state that the job had when they were read."""

    job: str
    state: str
    points: list[MetricValue]


_UNITS = {  # by the first part of the stored name
    "loss": "nats per token",
    "dev_loss": "nats per token",
    "tokens_per_second": "tokens per second",
    "flops_per_second": "FLOPs per second",
    "gate": "weight",
}


def job_metrics(session: Session, job_id: str, names: Collection[str] = ()) -> JobMetrics:
    """The points of a job by metric and step. `names` chooses metrics: `loss` also stands for `loss/DOMAIN`.

    Raises NotFoundError.
    """
    state = get_job(session, job_id).state  # first: an ended job gets no more points
    points = metrics(session, job_id)
    parts = gate_names(session, job_id) if any(point.name.startswith("gate/") for point in points) else []
    values = [_value(point, parts) for point in points]
    chosen = [
        value
        for value in values
        if not names or any(value.metric == name or value.metric.startswith(f"{name}/") for name in names)
    ]
    return JobMetrics(job=job_id, state=state, points=chosen)


def _value(point: MetricPoint, parts: list[str]) -> MetricValue:
    kind, _, rest = point.name.partition("/")
    name = point.name
    if kind == "gate":
        number, _, domain = rest.partition("/")
        name = f"gate/{parts[int(number)]}/{domain}"
    return MetricValue(metric=name, step=point.step, value=point.value, unit=_UNITS.get(kind, ""))


class MetricTail:
    """Reads the points of a job that were added since the last read."""

    def __init__(self, job_id: str, names: Collection[str] = ()) -> None:
        self._job_id, self._names = job_id, names
        self._seen: set[tuple[str, int]] = set()

    def read(self, session: Session) -> JobMetrics:
        """The new points by step. A step that a resumed job repeats is left out. Raises NotFoundError."""
        current = job_metrics(session, self._job_id, self._names)
        added = [point for point in current.points if (point.metric, point.step) not in self._seen]
        self._seen.update((point.metric, point.step) for point in added)
        added.sort(key=lambda point: (point.step, point.metric))
        return current.model_copy(update={"points": added})


_PREFIX = "dev_loss/"
_SAME = ("block_size", "evaluation_blocks", "separate_conversations")  # settings that choose what is measured


@dataclass(frozen=True)
class TrainingBaseline:
    """The held-out losses (nats per token) of another training by domain, or why there are none."""

    name: str = ""  # of the expert or seed, with what it is to this training
    points: tuple[MetricPoint, ...] = ()  # each named by its domain
    why_not: str = ""
    is_seed: bool = False  # its loss is one number for each domain, not a curve


def training_baseline(session: Session, job: JobCard) -> TrainingBaseline:
    """The curve of the parent on the domains of this training; without one, that of a dense model.

    Of a training that starts as its seed it is the seed's loss, measured before the first update. Only curves of the
    same text in the same blocks are comparable. Empty for a job that trains nothing.
    """
    training = _training(job.spec)
    if training is None:
        return TrainingBaseline()
    if points := _seed_losses(session, job, training[0]):
        return TrainingBaseline(f"seed {job.spec['seed_model']}", tuple(points), is_seed=True)
    parent = _parent(session, job)
    reasons = []
    for words, expert in [*([("parent", parent)] if parent else []), *_dense_models(session, job)]:
        curve = _curve(session, job, *training, expert)
        if not isinstance(curve, str):
            return TrainingBaseline(f"{words} {expert.name}", tuple(curve))
        reasons.append(curve)
    why_not = "There is no parent and no dense model of the same tokenizer: train one with the method dense."
    if "mixture" in job.spec and job.spec.get("parent") is None and job.state in ACTIVE:
        why_not = "The parent is chosen when the training starts."
    return TrainingBaseline(why_not=reasons[0] if reasons else why_not)


def _seed_losses(session: Session, job: JobCard, domains: Sequence[str]) -> list[MetricPoint]:
    """The losses at step 0, at every evaluated step, of a training that starts as its seed; else nothing."""
    spec = parse_spec(job.spec)
    if not isinstance(spec, MethodSettings) or not get_method(spec.method).starts_as_seed(spec.method_config):
        return []
    curves = {name: metrics(session, job.id, f"{_PREFIX}{name}") for name in (*domains, *getattr(spec, "retain", ()))}
    return [
        MetricPoint(name=name, step=point.step, value=curve[0].value)
        for name, curve in curves.items()
        for point in curve
        if curve[0].step == 0
    ]


def _training(spec: dict[str, Any]) -> tuple[list[str], Any] | None:
    """The domains that a training is evaluated on, and its config; None for a job that trains nothing."""
    try:
        parsed = parse_spec(spec)
    except WorkbenchError:  # the package of an old job was uninstalled
        return None
    config = getattr(parsed, "training", None)
    domains = getattr(parsed, "domains", None) or list(filter(None, [getattr(parsed, "domain", None)]))
    return (domains, config) if config is not None and domains else None


def _parent(session: Session, job: JobCard) -> Expert | None:
    """The expert whose copy this job trains; None for other trainings, and until it is chosen."""
    if (recorded := newest_event(session, job.id, PARENT)) is not None and recorded.data:
        return session.get(Expert, recorded.data["parent"])
    name = job.result.get("parent") or job.spec.get("parent")
    return find_row(session, Expert, name) if name else None


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


def _curve(
    session: Session, job: JobCard, domains: Sequence[str], config: Any, expert: Expert
) -> list[MetricPoint] | str:
    """The comparable losses of the training that made an expert, or a sentence that says why there are none."""
    other_job = session.get(Job, expert.job_id) if expert.job_id else None
    other = _training(other_job.spec) if other_job else None
    if other_job is None or other is None:
        return f"{expert.name} was not trained here, so it has no curve."
    for setting in _SAME:
        theirs, ours = getattr(other[1], setting), getattr(config, setting)
        if theirs != ours:
            return f"{expert.name} was evaluated with {setting} = {theirs}, this one with {ours}."
    # A domain's text never changes, but its name can be reused.
    since = min(other_job.created_at, job.created_at)
    unchanged = select(Domain.name).where(Domain.name.in_(domains), Domain.created_at <= since)
    present = {*session.scalars(unchanged)}.intersection(other[0])
    points = [
        MetricPoint(name=domain, step=point.step, value=point.value)
        for domain in domains
        if domain in present
        for point in metrics(session, other_job.id, f"{_PREFIX}{domain}")
    ]
    if not points:
        return f"{expert.name} was not evaluated on the held-out text of this training while it was trained."
    return points
