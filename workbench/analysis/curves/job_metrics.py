"""The curves of a job as points with units; while it runs, each point once."""

from __future__ import annotations

from collections.abc import Collection

from pydantic import Field
from sqlalchemy.orm import Session

from workbench.analysis.curves.training_history import gate_names
from workbench.answers.base import Answer
from workbench.job_records.jobs import get_job, metrics
from workbench.registry.cards import MetricPoint


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
    """The points of a job by metric and step. `names` chooses metrics: `loss` stands for `loss/DOMAIN`, too.

    Raises NotFoundError.
    """
    state = get_job(session, job_id).state  # first: an ended job gets no more points
    points = metrics(session, job_id)
    parts = gate_names(session, job_id) if any(point.name.startswith("gate/") for point in points) else []
    values = [_value(point, parts) for point in points]
    return JobMetrics(job=job_id, state=state, points=[one for one in values if _is_chosen(one.metric, names)])


def _value(point: MetricPoint, parts: list[str]) -> MetricValue:
    kind, _, rest = point.name.partition("/")
    name = point.name
    if kind == "gate":
        number, _, domain = rest.partition("/")
        name = f"gate/{parts[int(number)]}/{domain}"
    return MetricValue(metric=name, step=point.step, value=point.value, unit=_UNITS.get(kind, ""))


def _is_chosen(metric: str, names: Collection[str]) -> bool:
    return not names or any(metric == name or metric.startswith(f"{name}/") for name in names)


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
