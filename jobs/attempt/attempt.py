"""One attempt at a job: claim it, drive its work, write how it ended; in a worker and at a terminal alike."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress

from engine.device import prepare_process
from engine.errors import Problem
from engine.events import Event, Saved, Saving
from jobs.attempt.finish import finish, finish_done
from jobs.attempt.heartbeat import Heartbeat
from jobs.attempt.outcomes import STOPPED, Outcome, outcome_of
from jobs.attempt.reporting import Reporter, Throughput
from jobs.attempt.work import Claim, Register, Work, log_path
from jobs.registry import load_runner
from workbench.errors import JobError, LeaseLost
from workbench.job_records import jobs as rows
from workbench.job_records import leases
from workbench.registry import database
from workbench.settings import Settings, get_settings
from workbench.specs import parse_spec

LOOK_SECONDS = 0.05
THROUGHPUT = "throughput.json"  # beside the checkpoints
LEFT = Outcome("paused", "It was left at the terminal.", "Resume it: it goes on from its last checkpoint.")


class Stopped(Exception):
    """The work was asked to stop; the reason is the pulse's."""


def new_owner() -> str:
    """A name for one claim: the machine, the process, and something random."""
    return f"{socket.gethostname()[:60]}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


def take(settings: Settings, job_id: str, owner: str) -> Claim | None:
    """The claim on a job, or None when it is not (or no longer) there to be run."""
    with database.transaction(settings) as session:
        fence = leases.claim(session, job_id, owner, settings.lease_seconds, settings.max_attempts)
        if fence is None:
            return None
        return Claim(job_id, fence, rows.get_job(session, job_id).attempt, owner)


def run_here(job_id: str, settings: Settings | None = None) -> Iterator[Event]:
    """Runs a queued job in this process and yields its events; see `follow`."""
    settings = settings or get_settings()
    claim = take(settings, job_id, new_owner())
    if claim is None:
        raise JobError("The job must be in the queue to run it here, but is not.", "Look at its state.")
    yield from follow(claim, settings)


def follow(claim: Claim, settings: Settings) -> Iterator[Event]:
    """Does the work of a claimed job in this process. Closing the iterator, or Ctrl-C, pauses the job.

    It ends without an error when the job is done, or was stopped by somebody else; the row knows which.
    Raises the Problem that the job failed of (or paused at), after the row says so.
    """
    prepare_process(settings.threads)
    yield from attempt(claim, settings, _end_caller)


def _end_caller() -> None:
    print("The job is another worker's now, or did not stop in time: this process ends.", file=sys.stderr, flush=True)
    os._exit(1)


def attempt(
    claim: Claim, settings: Settings, hard_exit: Callable[[], object], watch: Sequence[int] = ()
) -> Iterator[Event]:
    """Does the work of a claimed job, yields its events, and writes how it ended.

    `hard_exit` ends this process at once; `watch` are descriptors that say stop when they can be read.
    """
    work = Work(claim, settings)
    reporter = Reporter(Throughput.kept(work.folder / THROUGHPUT))
    try:
        with Heartbeat(claim, settings, reporter, hard_exit, watch) as pulse:
            register = yield from _drive(work, pulse, reporter)
        is_done = finish_done(claim, settings, register, reporter.take(), reporter.result())
    except LeaseLost:
        raise
    except Stopped as stopped:
        reporter.keep_throughput(work.folder / THROUGHPUT)  # a training that is stopped leaves a checkpoint
        finish(claim, settings, STOPPED[str(stopped)], reporter.take())
    except (GeneratorExit, KeyboardInterrupt):
        reporter.keep_throughput(work.folder / THROUGHPUT)
        finish(claim, settings, LEFT, reporter.take())
        raise
    except Exception as error:
        log_traceback(settings, claim.job_id)
        ending = outcome_of(error, settings.jobs_folder, log_path(settings, claim.job_id))
        finish(claim, settings, ending, reporter.take())
        if isinstance(error, Problem):
            raise
        raise JobError(ending.problem, ending.next_step) from error
    else:
        if is_done:
            shutil.rmtree(work.folder, ignore_errors=True)


def _drive(work: Work, pulse: Heartbeat, reporter: Reporter) -> Generator[Event, None, Register]:
    """Yields the kind's events while it may go on; closes it when it must stop. Gives its Register."""
    with database.reading(work.settings) as session:
        spec = parse_spec(rows.get_job(session, work.job_id).spec)
    with closing(load_runner(spec.kind)(work, spec)) as stream:
        while True:
            _wait_until_allowed(pulse)
            try:
                event = next(stream)
            except StopIteration as end:
                register: Register = end.value
                return register
            reporter.add(event)
            match event:
                case Saving():
                    pulse.flush()
                case Saved():
                    reporter.keep_throughput(work.folder / THROUGHPUT)
            yield event


def _wait_until_allowed(pulse: Heartbeat) -> None:
    """Returns while the lease is good: a process that slept past it must not work on before it asked."""
    while True:
        if pulse.error is not None:
            raise pulse.error
        if pulse.stop == "silence":
            raise LeaseLost("The registry was silent for a whole lease.", "The job starts again by itself.")
        if pulse.stop:
            raise Stopped(pulse.stop)
        if pulse.has_lease():
            return
        time.sleep(LOOK_SECONDS)


def log_traceback(settings: Settings, job_id: str) -> None:
    """Appends the traceback of the present error to the job's log."""
    log = log_path(settings, job_id)
    with suppress(OSError):
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(traceback.format_exc())
