"""The argument and the result of a job's function.

A runner is a generator function: it yields the engine's events and returns a `Register`, which adds the results to the
registry in the same transaction that sets the job done. Closing the generator means stop.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from sqlalchemy.orm import Session

from engine.events import Event
from engine.gpus import Gpu
from engine.plugins import load_object
from jobs.attempt.leftovers import MADE, WORK, NotedStorage
from jobs.attempt.retries import with_retries
from workbench.job_records import leases
from workbench.kinds.kind import Kind, kind_named
from workbench.registry import database
from workbench.settings import Settings
from workbench.store import tombstones
from workbench.store.artifacts import find_artifact, register_artifact
from workbench.store.object_store import object_store
from workbench.store.storage import Storage
from workbench.store.stored_checkpoints import StoredCheckpoints


def load_runner(kind: str) -> Runner:
    """The generator function of a kind of job. Raises BadSpecError for an unknown kind, BadPluginError without one."""
    return cast(Runner, load_object(runner_path(kind_named(kind))))


def runner_path(kind: Kind[Any]) -> str:
    """`package.module:function`: what the kind names, or `run` in the module of `jobs.kinds` of its name."""
    return kind.runner or f"jobs.kinds.{kind.module}:run"


def stable_id(job_id: str, what: str) -> str:
    """The id (32 hexadecimal digits) of the job's result called `what`."""
    return uuid.uuid5(uuid.UUID(job_id), what).hex


Register = Callable[[Session], dict[str, Any]]
Runner = Callable[..., Generator[Event, None, Register]]


@dataclass(frozen=True)
class Claim:
    """The right to run a job: each write has the fence, and is refused once a newer fence exists."""

    job_id: str
    fence: int
    attempt: int
    owner: str
    gpus: tuple[Gpu, ...] = ()  # those that it has leased
    gpu_share: float = 1.0  # of its one GPU, where it has not leased it whole


@dataclass(frozen=True)
class Work:
    """One attempt at a job, as its function sees it."""

    claim: Claim
    settings: Settings

    @property
    def job_id(self) -> str:
        return self.claim.job_id

    @property
    def attempt(self) -> int:
        """1 for the first start."""
        return self.claim.attempt

    @cached_property
    def folder(self) -> Path:
        """The job's folder for checkpoints, which outlive attempts; it is removed once the job is done."""
        folder = self.settings.jobs_folder / self.job_id / WORK
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @cached_property
    def storage(self) -> Storage:
        """The store, where each new artifact is known to be this job's."""
        notes = self.settings.jobs_folder / self.job_id / MADE
        shared = object_store(self.settings.store)
        return NotedStorage(self.settings.artifacts_folder, notes, shared, self._before_upload)

    def _before_upload(self, artifact_id: str) -> None:
        """Notes a new artifact of the shared store, for garbage collection; raises LeaseLostError."""

        def write(session: Session) -> None:
            leases.renew(session, self.claim.job_id, self.claim.fence, self.settings.lease_seconds)
            tombstones.note_upload(session, artifact_id, self.job_id)

        with_retries(self.settings, write)

    @property
    def log(self) -> Path:
        """The log file of the job, for the output of the processes that it starts."""
        return log_path(self.settings, self.job_id)

    @cached_property
    def checkpoints(self) -> StoredCheckpoints | None:
        """The checkpoints in the shared store; None without one."""
        store = object_store(self.settings.store)
        return StoredCheckpoints(store, self.job_id, self.claim.fence) if store else None

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A short read transaction; nothing slow may happen inside."""
        with database.reading(self.settings) as session:
            yield session

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """A short write transaction that only the current lease holder can commit; raises LeaseLostError."""
        with database.transaction(self.settings) as session:
            leases.renew(session, self.claim.job_id, self.claim.fence, self.settings.lease_seconds)
            yield session

    def share(self, artifact_id: str, kind: str, key: str) -> Path:
        """Registers a new artifact under a key; returns its folder, or that of a job which was faster."""
        with self.transaction() as session:
            first = find_artifact(session, key)  # by the key it is the same
            artifact = first or register_artifact(session, self.storage, artifact_id, kind, key=key, job_id=self.job_id)
            shared_id = artifact.id
        return self.storage.path(shared_id)  # after the transaction: a shared store may be slow


def log_path(settings: Settings, job_id: str) -> Path:
    """The log file with the output of all the job's processes and attempts."""
    return settings.jobs_folder / job_id / "log.txt"
