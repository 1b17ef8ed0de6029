"""How an expert's training went, evaluation by evaluation: held-out losses, and for MoDE the gate weights."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.events import BACKBONE
from workbench.answers.base import Answer
from workbench.errors import NotFoundError
from workbench.job_records.jobs import events, metrics
from workbench.job_records.preconditions import creates
from workbench.kinds.parse_spec import parse_spec
from workbench.kinds.training.compose_mode import ComposeMode
from workbench.kinds.training.train_joint import TrainJoint
from workbench.kinds.training.train_mode import TrainMode
from workbench.registry.experts import domains_of
from workbench.schema.job_states import PARTS, UNFINISHED
from workbench.schema.tables import Expert, Job
from workbench.specs.base import Spec


class DomainHistory(Answer):
    """The evaluations of a training on one domain, step by step."""

    domain: str
    retained: bool = Field(description="Evaluated, but not trained on.")
    steps: list[int]
    losses: list[float] = Field(description="Held-out loss (nats per token).")
    gates: list[dict[str, float]] = Field(description="Mean weights of backbone and parts; empty unless of MoDE.")


class TrainingHistory(Answer):
    """How the training of an expert went."""

    expert: str
    job: str
    state: str
    domains: list[DomainHistory]


def training_history(session: Session, expert: str) -> TrainingHistory:
    """The evaluations of an expert's training on each domain; it may still be in training.

    Where several were trained at once, each was evaluated on its own domains alone. Raises NotFoundError.
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
    others = _judged_on_by_others(session, expert, spec)
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


def _judged_on_by_others(session: Session, expert: str, spec: Spec) -> set[str]:
    """The domains of a joint training whose losses are of other experts; none where one expert is trained."""
    if not isinstance(spec, TrainJoint) or len(spec.experts) == 1:
        return set()
    row = session.scalar(select(Expert).where(Expert.name == expert))
    return set(spec.domains) - set(spec.experts[expert] if row is None else domains_of(row))


def retained_by(session: Session, experts: Sequence[str]) -> Counter[str]:
    """The number of these experts trained with each retained domain (`retain`)."""
    of_experts = select(Job).join(Expert, Expert.job_id == Job.id).where(Expert.name.in_(experts))
    return Counter(name for job in session.scalars(of_experts) for name in getattr(parse_spec(job.spec), "retain", ()))


def _job_of(session: Session, expert: str) -> Job:
    """The job that trained an expert or is training it."""
    row = session.scalar(select(Expert).where(Expert.name == expert))
    if row is not None and row.job_id is not None and (job := session.get(Job, row.job_id)):
        return job
    unfinished = select(Job).where(Job.state.in_(UNFINISHED)).order_by(Job.created_at.desc())
    for job in session.scalars(unfinished):
        if ("expert", expert) in creates(parse_spec(job.spec)):
            return job
    raise NotFoundError("expert", expert, session.scalars(select(Expert.name).order_by(Expert.name).limit(20)))


def gate_names(session: Session, job_id: str) -> list[str]:
    """The names behind a job's gate weights, the backbone first; none if the job is not of MoDE.

    The parts of a composition from before their names were written down have numbers alone, until it is done.
    """
    job = session.get_one(Job, job_id)
    spec = parse_spec(job.spec)
    if isinstance(spec, TrainMode):
        return [BACKBONE, *spec.parts]
    if not isinstance(spec, ComposeMode):
        return []
    parts = job.result["parts"] if job.state == "done" else _recorded_parts(session, job_id)
    return [BACKBONE, *(parts or _numbered(session, job_id))]


def _recorded_parts(session: Session, job_id: str) -> list[str]:
    """The parts that a job recorded when its training last started; none where it recorded none."""
    recorded = (event.data for event in reversed(events(session, job_id)) if event.kind == PARTS)
    return next((list(data["parts"]) for data in recorded if data), [])


def _numbered(session: Session, job_id: str) -> list[str]:
    """A number for each part that was measured."""
    numbers = (int(one.name.split("/")[1]) for one in metrics(session, job_id) if one.name.startswith("gate/"))
    return [f"part {number}" for number in range(1, max(numbers, default=0) + 1)]
