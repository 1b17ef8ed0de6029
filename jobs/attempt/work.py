"""The argument and the result of a job's function.

A runner is a generator function: it yields the engine's events and returns the job's result, or a `Register`, which
adds objects to the registry in the same transaction that sets the job done, and returns the result. Closing the
generator means stop.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

from sqlalchemy.orm import Session

from engine.device import Gpu
from engine.errors import DamagedFileError
from engine.events import Event, Note
from engine.plugins import load_object
from jobs.attempt.leftovers import MADE, WORK, NotedStorage
from workbench.errors import DiskFullError, RegistryUnavailableError, StorageError, StoreFailedError
from workbench.job_records import leases
from workbench.kinds.kind import kind_named
from workbench.registry import database
from workbench.schema.tables import Artifact
from workbench.settings import Settings
from workbench.store import tombstones
from workbench.store.artifacts import find_artifact, register_artifact
from workbench.store.object_store import object_store
from workbench.store.storage import Storage
from workbench.store.stored_checkpoints import StoredCheckpoints

RETRY_SECONDS = 0.5
T = TypeVar("T")


def with_retries(settings: Settings, write: Callable[[Session], T]) -> T:
    """Runs one transaction; retries while the registry does not respond, up to the length of a lease."""

    def run() -> T:
        with database.transaction(settings) as session:
            return write(session)

    return call_with_retries(settings, run)


def call_with_retries(settings: Settings, call: Callable[[], T]) -> T:
    """The result of a call, which is repeated while the registry does not respond, up to the length of a lease."""
    until = time.monotonic() + settings.lease_seconds
    while True:
        try:
            return call()
        except (RegistryUnavailableError, DiskFullError):
            if time.monotonic() >= until:
                raise
            time.sleep(RETRY_SECONDS)


def load_runner(kind: str) -> Runner:
    """The generator function of a kind of job: what the kind names, or `run` in the module of `jobs.kinds` of its name.

    Raises BadSpecError for an unknown kind, BadPluginError without one.
    """
    known = kind_named(kind)
    return cast(Runner, load_object(known.runner or f"jobs.kinds.{known.module}:run"))


Result = dict[str, Any]  # JSON
Register = Callable[[Session], Result]
Events = Generator[Event, None, T]  # what a step does, and then its result
JobRun = Events[Register | Result]
Runner = Callable[..., JobRun]


@dataclass(frozen=True)
class JobClaim:
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

    claim: JobClaim
    settings: Settings

    most_blocks: ClassVar[int | None] = None  # of held-out text that a search of the parent scores; a probe has a limit

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

    def stable_id(self, what: str) -> str:
        """The id (32 hexadecimal digits) of the job's result called `what`."""
        return uuid.uuid5(uuid.UUID(self.job_id), what).hex

    @property
    def environment(self) -> dict[str, Any]:
        """What the bits of this attempt depend on. It is in the results of trainings, for their replay."""
        from engine.device import current_environment  # loads torch

        return asdict(current_environment(self.settings.device, self.settings.processes))

    @property
    def log(self) -> Path:
        """The log file of the job, for the output of the processes that it starts."""
        return log_path(self.settings, self.job_id)

    @cached_property
    def checkpoints(self) -> StoredCheckpoints | None:
        """The checkpoints in the shared store; None without one."""
        store = object_store(self.settings.store)
        return StoredCheckpoints(store, self.job_id, self.claim.fence) if store else None

    def reading(self) -> AbstractContextManager[Session]:
        """A short read transaction; nothing slow may happen inside."""
        return database.reading(self.settings)

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """A short write transaction that only the current lease holder can commit; raises LeaseLostError."""
        with database.transaction(self.settings) as session:
            leases.renew(session, self.claim.job_id, self.claim.fence, self.settings.lease_seconds)
            yield session

    def register_artifact(self, session: Session, artifact_id: str, kind: str, key: str | None = None) -> Artifact:
        """The row of an artifact that this job has stored."""
        return register_artifact(session, self.storage, artifact_id, kind, key=key, job_id=self.job_id)

    def cached_artifact(self, key: str, kind: str, fill: Callable[[Path], Iterator[Event]]) -> Events[Path]:
        """The verified folder of the artifact that all jobs share by this key; `fill` writes it if there is none yet.

        A damaged one loses its row, so that garbage collection takes it, and is made again. Raises StoreFailedError
        while a shared store is away, and DiskFullError.
        """
        with self.reading() as session:
            if (existing := find_artifact(session, key)) is not None:
                session.expunge(existing)
        if existing is not None:
            try:
                kept = self.storage.kept(existing)
                kept.check()
                return kept.folder
            except (StoreFailedError, DiskFullError):
                raise
            except (
                DamagedFileError,
                StorageError,
            ) as damaged:  # the second: fetched now, and damaged in the shared store
                yield Note(f"{damaged.cause} It is made again.")
            with self.transaction() as session:
                row = find_artifact(session, key)
                if row is not None and row.id == existing.id:  # else another job has made it again already
                    session.delete(row)
        artifact_id = uuid.uuid4().hex
        with self.storage.new(artifact_id) as folder:
            yield from fill(folder)
        return self._share(artifact_id, kind, key)

    def _share(self, artifact_id: str, kind: str, key: str) -> Path:
        """Registers a new artifact under a key; returns its folder, or that of a job which was faster."""
        with self.transaction() as session:
            first = find_artifact(session, key)  # by the key it is the same
            shared_id = (first or self.register_artifact(session, artifact_id, kind, key)).id
        return self.storage.path(shared_id)  # after the transaction: a shared store may be slow


def log_path(settings: Settings, job_id: str) -> Path:
    """The log file with the output of all the job's processes and attempts."""
    return settings.jobs_folder / job_id / "log.txt"


def append_to_log(settings: Settings, job_id: str, text: str) -> None:
    """Adds lines to a job's log; a full disk must not end the job through its log."""
    log = log_path(settings, job_id)
    with suppress(OSError):
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
