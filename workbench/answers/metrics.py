"""Answers about the curves of jobs: losses, gate weights and speeds, step by step."""

from __future__ import annotations

from pydantic import Field

from workbench.answers.base import Answer


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
