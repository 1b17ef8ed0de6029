"""One attempt at a job: claims it, drives its work and writes the outcome, in a worker or a terminal."""

from __future__ import annotations

import os
import socket
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress

from engine.device import megabytes, prepare_process
from engine.errors import DamagedFileError, DoesNotFitError, Problem
from engine.events import Event, Note, Requirements, Saved, Saving
from engine.files import folder_size
from jobs.attempt.checkpoint_upload import CheckpointUpload
from jobs.attempt.finish import STOPPED, AttemptOutcome, finish, finish_done, outcome_of
from jobs.attempt.heartbeat import Heartbeat
from jobs.attempt.job_log import begin_log, upload_log
from jobs.attempt.leased_devices import require_leased_gpus
from jobs.attempt.leftovers import remove_leftovers_of
from jobs.attempt.reporting import Reporter, Throughput
from jobs.attempt.tracking import Tracking
from jobs.attempt.work import Events, JobClaim, JobRun, Register, Result, Work, append_to_log, load_runner, log_path
from jobs.uploads import with_uploads_here
from workbench.errors import JobError, LeaseLostError, StorageError, StoreFailedError
from workbench.integrity.check import with_names
from workbench.job_records import devices, leases
from workbench.job_records import jobs as rows
from workbench.job_records.devices import DevicePool
from workbench.job_records.preconditions import require_free_names
from workbench.kinds.kind import kind_named, parse_spec
from workbench.registry import database
from workbench.settings import Settings, get_settings
from workbench.store.storage import free_bytes

POLL_SECONDS = 0.05
THROUGHPUT = "throughput.json"  # next to the checkpoints
LEFT = AttemptOutcome(
    "paused", "It was interrupted at the terminal.", "Resume it: it continues from its last checkpoint."
)


class StoppedError(Exception):
    """The job must stop; the reason is that of the heartbeat."""


def host_name() -> str:
    """The name of this machine among those of one registry."""
    return socket.gethostname()[:60]


def new_owner() -> str:
    """A unique name for one claim: machine, process and a random part."""
    return f"{host_name()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


def take(
    settings: Settings, job_id: str, owner: str, pool: DevicePool | None = None, log_start: int | None = None
) -> JobClaim | None:
    """Claims a job and leases its GPUs of a worker's pool, both or neither.

    None when it is not (or no longer) in the queue. Raises DevicesBusyError when too few GPUs are free. Without a pool,
    nothing is leased. `log_start` is where the attempt's output begins in the log: at its end by default.
    """
    with database.transaction(settings) as session:
        fence = leases.claim(session, job_id, owner, settings.lease_seconds, settings.max_attempts)
        if fence is None:
            return None
        attempt = rows.get_job(session, job_id).attempt
        need = rows.device_needs(session, [job_id], settings)[job_id]
        gpus = devices.lease(session, job_id, fence, pool, need) if pool else []
        claim = JobClaim(job_id, fence, attempt, owner, tuple(gpus), need.share if gpus else 1.0)
    begin_log(settings, claim, log_start)
    return claim


def run_here(job_id: str, settings: Settings | None = None) -> Iterator[Event]:
    """Runs a queued job in this process and yields its events; see `follow`."""
    settings = settings or get_settings()
    claim = take(settings, job_id, new_owner())
    if claim is None:
        raise JobError("The job is not in the queue.", "Check its status.")
    yield from follow(claim, settings)


def follow(claim: JobClaim, settings: Settings) -> Iterator[Event]:
    """Runs a claimed job in this process. Closing the iterator, or Ctrl-C, pauses the job.

    It ends without an error when the job is done or was stopped; the row has the state.
    Raises the Problem for which the job failed or paused, after it was written to the row.
    """
    prepare_process(settings.threads)
    try:
        yield from attempt(claim, settings, _end_caller)
    finally:
        upload_log(settings, claim.job_id)


def _end_caller() -> None:
    print(
        "Another worker has taken the job, or it did not stop in time. This process ends.", file=sys.stderr, flush=True
    )
    os._exit(1)


def attempt(
    claim: JobClaim,
    settings: Settings,
    hard_exit: Callable[[], object],
    watch: Sequence[int] = (),
    imported: Callable[[], object] = lambda: None,
) -> Iterator[Event]:
    """Runs a claimed job, yields its events, and writes the outcome.

    `hard_exit` ends this process at once; `watch` are file descriptors that become readable to request a stop;
    `imported` is called once the job's function is imported: from then on the heartbeat keeps the lease.
    """
    work = Work(claim, settings)
    with closing(Tracking(work)) as tracking:
        try:
            reporter = Reporter(Throughput.load(work.folder / THROUGHPUT), tracking.add)
        except DamagedFileError as damaged:  # mere statistics end no job
            reporter = Reporter(forward=tracking.add)
            reporter.add(Note(f"{damaged} The speed is measured again; checkpoints and weights are not affected."))
        yield from _attempt(work, Heartbeat(claim, settings, reporter, hard_exit, watch), imported)


def _attempt(work: Work, heartbeat: Heartbeat, imported: Callable[[], object]) -> Generator[Event, None, None]:
    claim, settings, reporter = work.claim, work.settings, heartbeat.reporter
    try:
        with heartbeat:
            try:
                with database.reading(settings) as session:
                    spec = parse_spec(with_uploads_here(rows.get_job(session, work.job_id).spec, settings))
                    require_free_names(session, spec)
                runner = load_runner(spec.kind)  # whose import may take long
                heartbeat.flush()  # ends this process if the lease was lost meanwhile
                imported()
                require_leased_gpus(work)
                with _uploading(work, heartbeat) as upload:
                    made = yield from _drive(work, runner(work, spec), heartbeat, upload)
                measured = reporter.result()
                if kind_named(spec.kind).replayed is not None:
                    measured["environment"] = work.environment
            except (StoppedError, GeneratorExit, KeyboardInterrupt) as stop:
                _keep(work, reporter, upload=str(stop) != "cancel")  # while the lease holds: an upload takes time
                raise
        is_done = finish_done(claim, settings, made, reporter.take(), measured)
    except LeaseLostError:
        raise
    except StoppedError as stopped:
        finish(claim, settings, STOPPED[str(stopped)], reporter.take())
    except (GeneratorExit, KeyboardInterrupt):
        finish(claim, settings, LEFT, reporter.take())
        raise
    except Exception as raised:
        append_to_log(settings, claim.job_id, traceback.format_exc())
        error = with_names(settings, raised) if isinstance(raised, DamagedFileError) else raised
        outcome = outcome_of(error, settings.jobs_folder, log_path(settings, claim.job_id))
        finish(claim, settings, outcome, reporter.take())
        if error is raised and isinstance(error, Problem):
            raise
        raise (error if isinstance(error, Problem) else JobError(outcome.problem, outcome.next_step)) from raised
    else:
        if is_done:
            with suppress(Problem, OSError):  # else the scheduler does it
                remove_leftovers_of(settings, claim.job_id)
            with suppress(Problem, OSError):
                if work.checkpoints:
                    work.checkpoints.remove()


@contextmanager
def _uploading(work: Work, heartbeat: Heartbeat) -> Iterator[CheckpointUpload | None]:
    """The upload of checkpoints while the work goes on, if there is a shared store. It ends with the block.

    If the work fails, what waits is uploaded first: a retry, perhaps on another machine, continues from there.
    """
    if work.checkpoints is None:
        yield None
        return
    upload = CheckpointUpload(
        work.checkpoints, work.folder, heartbeat.has_lease, lambda: upload_log(work.settings, work.job_id)
    )
    try:
        yield upload
    except (StoppedError, LeaseLostError, StoreFailedError):
        raise
    except Exception:
        with _noting_failed_upload(heartbeat.reporter):
            for saved in upload.wait():
                heartbeat.reporter.add(saved)
        raise
    finally:
        upload.stop()


@contextmanager
def _noting_failed_upload(reporter: Reporter) -> Iterator[None]:
    try:
        yield
    except StorageError as problem:
        reporter.add(Note(f"{problem} Another machine would continue from the checkpoint before."))


def _keep(work: Work, reporter: Reporter, *, upload: bool) -> None:
    """Keeps what a stopped attempt leaves for the next one; a shared store that is away has the checkpoint before."""
    reporter.keep_throughput(work.folder / THROUGHPUT)
    if upload and work.checkpoints:
        with _noting_failed_upload(reporter):
            work.checkpoints.save(work.folder)


def _drive(work: Work, run: JobRun, heartbeat: Heartbeat, upload: CheckpointUpload | None) -> Events[Register | Result]:
    """Yields the events of the job's function and closes it when it must stop; returns what it returns."""
    reporter = heartbeat.reporter
    damaged = work.checkpoints.restore(work.folder) if work.checkpoints else []  # of an attempt on another machine
    if damaged:
        yield Note(f"Damaged or missing in the shared store, so an older checkpoint is used: {', '.join(damaged[:4])}.")
    with closing(run) as stream:
        while True:
            _wait_until_allowed(heartbeat)
            for saved in upload.take_uploaded() if upload else ():
                reporter.add(saved)
            try:
                event = next(stream)
            except StopIteration as end:
                made: Register | Result = end.value
                return made
            if not (upload and isinstance(event, Saved)):  # which counts as progress when it is uploaded
                reporter.add(event)
            match event:
                case Requirements():
                    require_disk(work, event)
                case Saving():
                    heartbeat.flush()
                case Saved():
                    reporter.keep_throughput(work.folder / THROUGHPUT, at_saving=True)
                    if upload:
                        upload.add(event)
            yield event


def _wait_until_allowed(heartbeat: Heartbeat) -> None:
    """Waits until the lease is valid: a process that was suspended past it must renew it first."""
    while True:
        if heartbeat.error is not None:
            raise heartbeat.error
        if heartbeat.stop == "silence":
            raise LeaseLostError(
                "The registry did not respond for a full lease.", "The job starts again automatically."
            )
        if heartbeat.stop:
            raise StoppedError(heartbeat.stop)
        if heartbeat.has_lease():
            return
        time.sleep(POLL_SECONDS)


def require_disk(work: Work, needs: Requirements) -> None:
    """Raises DoesNotFitError where checkpoints, or the result, are larger than what is free on their disk.

    Checkpoints of an earlier attempt already take their space.
    """
    left = needs.checkpoints_bytes - folder_size(work.folder)
    move = f"move the home folder {work.settings.root} to a larger disk"
    another = "set WORKBENCH_ARTIFACTS to a folder on a larger disk"
    for what, needed, folder, change in (
        ("checkpoints", left, work.folder, move),
        ("its result", needs.result_bytes, work.settings.artifacts_folder, another),
    ):
        if needed > (free := free_bytes(folder)):
            raise DoesNotFitError(
                f"It takes at least {megabytes(needed)} of disk for {what}, and {megabytes(free)} are free.",
                f"Free some space and retry it, or {change}.",
            )
