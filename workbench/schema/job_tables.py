"""The tables of jobs, of their events and metrics, and of the GPUs that they lease."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import JSON, ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from workbench.schema.base import Base, Dated, WithId
from workbench.schema.job_states import JobState


class Job(WithId, Dated, Base):
    """A job: its spec, state and progress. This row is the source of truth; the broker only wakes workers.

    States: queued -> running -> done | failed | cancelled, and paused. `fence` rises with every claim;
    each later write carries it. `stop_requested` is "", "cancel" or "pause".
    """

    __tablename__, noun = "jobs", "job"
    __table_args__ = (Index("ix_jobs_state", "state", "priority", "created_at"),)
    kind: Mapped[str] = mapped_column(String(32))
    title: Mapped[str] = mapped_column(String(300))
    spec: Mapped[dict[str, Any]]
    state: Mapped[JobState] = mapped_column(String(16), default="queued")
    priority: Mapped[int] = mapped_column(default=0)
    attempt: Mapped[int] = mapped_column(default=0)
    fence: Mapped[int] = mapped_column(default=0)
    owner: Mapped[str] = mapped_column(String(120), default="")
    lease_until: Mapped[float | None]
    stop_requested: Mapped[str] = mapped_column(String(16), default="")
    progress: Mapped[float] = mapped_column(default=0.0)  # 0 to 1
    progress_note: Mapped[str] = mapped_column(Text, default="")
    eta_seconds: Mapped[float | None]
    eta_soonest: Mapped[float | None]
    eta_latest: Mapped[float | None]
    error: Mapped[str] = mapped_column(Text, default="")
    next_step: Mapped[str] = mapped_column(Text, default="")
    failure: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))  # cards.Failure
    result: Mapped[dict[str, Any]] = mapped_column(default=dict)
    sent_at: Mapped[float | None]
    started_at: Mapped[float | None]
    finished_at: Mapped[float | None]

    events: Mapped[list[JobEvent]] = relationship(back_populates="job", order_by="JobEvent.id")


class Device(Base):
    """A GPU of a host, registered by a worker there until `seen_until`.

    It is leased whole to a job as long as this job runs under this fence: the lease of the job is that of its devices.
    """

    __tablename__ = "devices"
    host: Mapped[str] = mapped_column(String(120), primary_key=True)
    uuid: Mapped[str] = mapped_column(String(64), primary_key=True)
    number: Mapped[str] = mapped_column(String(64))  # by which people know it
    address: Mapped[str] = mapped_column(String(64))  # in CUDA_VISIBLE_DEVICES, by its UUID; empty: its number
    name: Mapped[str] = mapped_column(String(120), default="")
    memory_bytes: Mapped[int] = mapped_column(default=0)
    worker: Mapped[str] = mapped_column(String(120))  # the last one that registered it
    seen_until: Mapped[float]
    job_id: Mapped[str | None] = mapped_column(String(32))  # the last one that leased it, which may be deleted since
    fence: Mapped[int] = mapped_column(default=0)


class DeviceShare(Base):
    """A job's lease of a part of a GPU, valid as long as this job runs under this fence; together at most 1."""

    __tablename__ = "device_shares"
    host: Mapped[str] = mapped_column(String(120), primary_key=True)
    uuid: Mapped[str] = mapped_column(String(64), primary_key=True)
    job_id: Mapped[str] = mapped_column(String(32), primary_key=True)
    fence: Mapped[int]
    share: Mapped[float]  # more than 0, less than 1


class DeviceTenant(Base):
    """An API server on a GPU until `seen_until`: it shares the GPU with jobs, within a bound of memory."""

    __tablename__ = "device_tenants"
    host: Mapped[str] = mapped_column(String(120), primary_key=True)
    uuid: Mapped[str] = mapped_column(String(64), primary_key=True)
    tenant: Mapped[str] = mapped_column(String(200), primary_key=True)  # its address
    most_bytes: Mapped[int]
    seen_until: Mapped[float]


class JobDependency(Base):
    """`job_id` starts only when `after_id` is done."""

    __tablename__ = "job_dependencies"
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    after_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)


class JobEvent(Base):
    """An event of a job; rows are only added."""

    __tablename__ = "job_events"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), index=True)
    at: Mapped[float] = mapped_column(default=time.time)
    attempt: Mapped[int] = mapped_column(default=0)
    message: Mapped[str] = mapped_column(Text)  # for people; what the code reads is in `kind` and `data`
    kind: Mapped[str | None] = mapped_column(
        String(32)
    )  # of workbench.schema.job_states; None: only the message matters
    data: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))

    job: Mapped[Job] = relationship(back_populates="events")


class Metric(Base):
    """One value of a job's metric at a step. A resumed job replaces the value of a repeated step."""

    __tablename__ = "metrics"
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    name: Mapped[str] = mapped_column(String(160), primary_key=True)
    step: Mapped[int] = mapped_column(primary_key=True)
    value: Mapped[float]
