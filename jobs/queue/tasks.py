"""The Celery task: runs the most urgent waiting jobs, one by one, until none is left.

The id in the message only wakes the worker up; it chooses jobs by their rows. So a job that became due because another
ended starts at once, priorities hold, and one message is enough for a full queue.

When the worker stops, it closes the lifelines of its runners: they leave a checkpoint and return their jobs to the
queue. When it is killed, the kernel closes them.

Until a runner has imported its work, the worker renews the lease for it: a heartbeat is a thread, which stands still
while Python loads a large library, on a busy machine for longer than a lease.

A command runs jobs of its own (`run_jobs`) as a worker does: each in its own process, several in parallel.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import FileIO
from typing import NamedTuple

from celery import Celery
from celery.signals import worker_shutting_down

from engine.device import end_session, prepare_process, process_environment, python_command, python_environment
from engine.errors import Problem
from jobs.attempt.attempt import new_owner, take
from jobs.attempt.finish import SMALLER, AttemptOutcome, finish
from jobs.attempt.job_log import last_line, upload_log
from jobs.attempt.work import JobClaim, call_with_retries, log_path
from jobs.queue.app import RUN, make_app
from jobs.queue.choosing import choose_job, gpu_options, leasing
from jobs.queue.device_registration import register_gpus
from jobs.queue.scheduler import LeaseReaper
from workbench.answers.cards import JobCard
from workbench.errors import DiskFullError, LeaseLostError, NoRegistryError, RegistryUnavailableError
from workbench.job_records import jobs as rows
from workbench.job_records import leases
from workbench.registry import database
from workbench.registry.database import require_registry
from workbench.schema.job_states import FINISHED
from workbench.schema.job_tables import Job
from workbench.settings import Settings, get_settings

START_SECONDS = 900.0  # after which a process that has not begun its work is ended: it hangs


class StartSignal:
    """A pipe whose end `sink` a process closes once it has imported its work; it is also closed when it dies."""

    def __init__(self) -> None:
        self._source, self.sink = os.pipe()

    def __enter__(self) -> StartSignal:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._source)
        self.drop_sink()

    def drop_sink(self) -> None:
        """Closes this process's copy of the sink, after the other process has its own."""
        if self.sink >= 0:
            os.close(self.sink)
            self.sink = -1

    def wait(self, seconds: float) -> bool:
        """Whether the other process has given the signal, within so many seconds."""
        return bool(select.select([self._source], [], [], seconds)[0])


def keep_lease_until_started(
    settings: Settings, job_id: str, owner: str, process: subprocess.Popen[bytes], started: StartSignal
) -> bool:
    """Renews the lease that a process claims as `owner`, until it has begun its work or is dead; False if it was ended.

    A process that does not begin in START_SECONDS is ended. A job that was asked to stop is not kept: its process stops
    it, or it is taken back. A registry that is away is tried again later.
    """
    started.drop_sink()
    until = time.monotonic() + START_SECONDS
    seconds = min(settings.heartbeat_seconds, settings.lease_seconds / 3)
    while not started.wait(seconds):
        if time.monotonic() >= until:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            return False
        with suppress(NoRegistryError, DiskFullError, LeaseLostError), database.transaction(settings) as session:
            job = session.get(Job, job_id)
            if job and (job.state, job.owner, job.stop_requested) == ("running", owner, ""):  # it has claimed the job
                leases.renew(session, job_id, job.fence, settings.lease_seconds)
    return True


RUNNER = python_command("jobs.attempt.runner")

_stopping = threading.Event()
_problems: list[Problem] = []  # for which this worker ends
_lifelines: set[FileIO] = set()


def run(job_id: str) -> None:
    """The Celery task; `job_id` only wakes the worker up."""
    settings = get_settings()
    try:
        require_registry(settings)  # it may have been upgraded while this worker ran
        while not _stopping.is_set() and run_most_urgent(settings):
            pass
    except RegistryUnavailableError as away:
        print(f"{job_id}: {away}", file=sys.stderr, flush=True)  # the scheduler sends another message
    except NoRegistryError as problem:
        # Ends this worker as SIGTERM does; it then says the problem, as one that starts would.
        _problems.append(problem)
        if len(_problems) == 1:  # a second signal would not wait for the checkpoints of running jobs
            os.kill(os.getpid(), signal.SIGTERM)


def raise_problem() -> None:
    """Raises the problem that ended this worker, if one did."""
    if _problems:
        raise _problems[0]


def worker_app(settings: Settings) -> Celery:
    """The Celery application of a worker, which knows the task."""
    app = make_app(settings)
    app.task(run, name=RUN)
    return app


def run_most_urgent(settings: Settings, among: Collection[str] | None = None) -> bool:
    """Runs the most urgent job (of `among`, or of all); False when none waits or none can be claimed."""
    with choose_job(settings, among) as job_id:
        if job_id is None:
            return False
        before = row_of(settings, job_id)
        if before is None:  # deleted since it was chosen
            return True
        owner = new_owner()
        end = run_process(settings, job_id, owner)
        if end.code != 0 and not _is_claimed(settings, before):
            take(settings, job_id, owner, log_start=end.log_start)  # it died before claiming: that counts as an attempt
        take_back(settings, job_id, owner, end)
        has_run = _is_claimed(settings, before)
        if has_run:
            upload_log(settings, job_id)
        return has_run


def row_of(settings: Settings, job_id: str) -> Job | None:
    """The job's current row, detached from the session; None once it is deleted."""
    with database.reading(settings) as session:
        job = session.get(Job, job_id)
        if job is not None:
            session.expunge(job)
        return job


def _is_claimed(settings: Settings, before: Job) -> bool:
    """Whether a job was claimed since it had this row, or deleted: either way it waits no longer as it did."""
    job = row_of(settings, before.id)
    return job is None or job.fence != before.fence


class Exit(NamedTuple):
    """A process's exit code, its last line of output (empty without output) and where its output begins in the log."""

    code: int
    last_line: str = ""
    log_start: int | None = None
    has_started: bool = True  # False: it hung before it began its work, and was ended for it


def run_process(settings: Settings, job_id: str, owner: str) -> Exit:
    """Runs one attempt in its own process, with its output in the job's log."""
    log = log_path(settings, job_id)
    log.parent.mkdir(parents=True, exist_ok=True)
    with lifeline() as end, StartSignal() as started, log.open("ab") as output:
        start = output.tell()
        pipes = ["--lifeline", str(end), "--started", str(started.sink)]
        process = subprocess.Popen(
            [*RUNNER, job_id, "--owner", owner, *pipes, "--log-start", str(start), *gpu_options()],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=[end, started.sink],
            env={**process_environment(settings.threads), **_OUTPUT, **os.environ, **python_environment()},
        )
        has_started = keep_lease_until_started(settings, job_id, owner, process, started)
        return Exit(wait_for(process), last_line(log, start), start, has_started)


_OUTPUT = {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}  # a crash in C code leaves its traceback in the log


@contextmanager
def lifeline() -> Iterator[int]:
    """The runner's end of a pipe that closes with the block, with `stop_runners`, or with this process."""
    source, sink = os.pipe()
    ours = FileIO(sink, "wb")
    _lifelines.add(ours)
    try:
        if _stopping.is_set():
            ours.close()
        yield source
    finally:
        _lifelines.discard(ours)
        ours.close()
        os.close(source)


def stop_runners(**_: object) -> None:
    """Requests all runners to stop. Runs inside a signal handler: takes no lock and waits for nothing."""
    _stopping.set()
    for ours in list(_lifelines):
        ours.close()


worker_shutting_down.connect(stop_runners)


def wait_for(process: subprocess.Popen[bytes]) -> int:
    """Waits for a process, kills its children, and returns its exit code."""
    if hasattr(os, "waitid"):
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        end_session(process.pid)  # srun, for one, then gives its nodes back
        with suppress(ProcessLookupError):  # not reaped yet, so the group id is not reused
            os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def take_back(settings: Settings, job_id: str, owner: str, end: Exit) -> None:
    """Puts a job whose process died back into the queue. After the last attempt it fails, or waits for memory."""
    job = row_of(settings, job_id)
    if job is None or job.state != "running" or job.owner != owner:
        return
    claim = JobClaim(job_id, job.fence, job.attempt, owner)
    with database.reading(settings) as session:
        progressed = leases.has_progressed(session, job_id)
        may_retry = leases.has_attempts_left(session, job_id, settings.max_attempts)
    count = "after a new checkpoint" if progressed else f"in attempt {claim.attempt} of {settings.max_attempts}"
    hung = f"did not begin its work within {START_SECONDS:g} s and was ended"
    cause = f"Its process {describe_exit(end.code) if end.has_started else hung} {count}"
    # A process killed by a signal could not print the cause: its last line is something else.
    cause += f": {end.last_line}" if end.code > 0 and end.last_line else "."
    if may_retry:
        finish(claim, settings, AttemptOutcome("queued", cause))
    elif end.has_started and end.code == -signal.SIGKILL:
        finish(claim, settings, AttemptOutcome("paused", cause, SMALLER))
    else:
        finish(
            claim, settings, AttemptOutcome("failed", cause, f"See its log {log_path(settings, job_id)}, then retry.")
        )


def describe_exit(code: int) -> str:
    """How a process ended, for a sentence: `was ended by SIGKILL (perhaps the memory ran out)`."""
    if code >= 0:
        return f"ended with code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return f"was ended by {name}" + (" (perhaps the memory ran out)" if -code == signal.SIGKILL else "")


POLL_SECONDS = 0.5
POLL_SHARE = 0.05  # of the time, at most, that reading the cards of many jobs takes


def watch(ids: Sequence[str], settings: Settings | None = None) -> Iterator[list[JobCard]]:
    """Yields the cards of jobs every half second until each has ended, is paused, or waits for a paused one.

    Hundreds of jobs are read less often, since their reading takes time from those that run. A registry that does not
    respond is waited for as long as a lease lasts.
    """
    settings = settings or get_settings()
    pause = threading.Event()
    while True:
        began = time.monotonic()
        cards = call_with_retries(settings, lambda: cards_of(ids, settings))
        seconds = time.monotonic() - began
        yield cards
        if not _unfinished_jobs(cards):
            return
        pause.wait(max(POLL_SECONDS, seconds / POLL_SHARE))


def run_jobs(ids: Sequence[str], settings: Settings | None = None) -> Iterator[list[JobCard]]:
    """Runs these jobs, as many in parallel as a worker would, and yields their cards.

    Closing it, or Ctrl-C, stops running jobs at a checkpoint and leaves them in the queue.
    """
    settings = settings or get_settings()
    prepare_process(settings.threads or max(1, (os.cpu_count() or 1) // settings.worker_slots))
    over, reaper, reaped_at = threading.Event(), LeaseReaper(settings), time.monotonic()
    with register_gpus(settings) as pool, leasing(pool):
        arguments = set(ids), settings, over
        runners = [threading.Thread(target=_run_all, args=arguments) for _ in range(settings.worker_slots)]
        for runner in runners:
            runner.start()
        try:
            for cards in watch(ids, settings):
                yield cards
                if not any(runner.is_alive() for runner in runners):
                    return
                if time.monotonic() - reaped_at >= settings.reconcile_seconds:  # no scheduler may be running
                    with suppress(RegistryUnavailableError):
                        reaper.reap()
                    reaped_at = time.monotonic()
        except BaseException:
            stop_runners()
            raise
        finally:
            over.set()
            for runner in runners:
                runner.join()


def _run_all(ids: Collection[str], settings: Settings, over: threading.Event) -> None:
    """Runs jobs one after another until `over` is set, also after a registry that did not respond for a while."""
    while not over.is_set():
        has_run = False
        with suppress(RegistryUnavailableError):  # `watch` raises where it stays away
            has_run = run_most_urgent(settings, ids)
        if not has_run:  # waiting jobs depend on one that runs, here or elsewhere
            over.wait(POLL_SECONDS)


def _unfinished_jobs(cards: Sequence[JobCard]) -> list[JobCard]:
    """The jobs that run, or can run without another job being resumed."""
    held = {card.id for card in cards if card.state == "paused"}
    while behind := {card.id for card in cards if card.id not in held and held.intersection(card.after)}:
        held |= behind
    return [card for card in cards if card.state not in FINISHED and (card.id not in held or card.state == "running")]


def cards_of(ids: Sequence[str], settings: Settings | None = None) -> list[JobCard]:
    """The current cards of jobs, without deleted ones."""
    with database.reading(settings) as session:
        return rows.get_jobs(session, ids)
