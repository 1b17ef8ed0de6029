"""Runs one attempt at a job in its own process: `python -P -m jobs.attempt.runner JOB_ID`.

It claims the job before heavy imports, so that a duplicate delivery ends quickly. A worker passes one end of a pipe
(`--lifeline`): when the other end closes, on shutdown or because the worker was killed, the job stops at its next
event, leaves a checkpoint and returns to the queue.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import NoReturn

from engine.device import VISIBLE, end_session, prepare_process
from engine.errors import Problem
from engine.events import Event, Progress, Requirements, Step
from jobs.attempt.attempt import attempt, host_name, new_owner, take
from jobs.attempt.reporting import sentence
from workbench.job_records.devices import DevicePool
from workbench.settings import Settings, get_settings

LOG_SECONDS = 5.0


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs one attempt and ends the process, even if a library left threads behind."""
    parser = argparse.ArgumentParser(prog="python -P -m jobs.attempt.runner", description="Run one attempt at a job.")
    parser.add_argument("job_id")
    parser.add_argument("--owner", default="", help="Name under which to claim the job.")
    parser.add_argument("--gpus", default="", help="UUIDs of the GPUs that may be leased, separated by commas.")
    parser.add_argument("--lifeline", type=int, help="Descriptor of a pipe; stop when it closes.")
    parser.add_argument("--started", type=int, help="Descriptor of a pipe; close it once the work is imported.")
    parser.add_argument("--log-start", type=int, help="Where the output of this process begins in the job's log.")
    options = parser.parse_args(arguments)
    watch = [watch_signals(), *([] if options.lifeline is None else [options.lifeline])]
    if not select.select(watch, [], [], 0)[0]:
        pool = DevicePool(host_name(), tuple(uuid for uuid in options.gpus.split(",") if uuid))
        imported = _closing(options.started)
        leave(run(options.job_id, options.owner or new_owner(), watch, pool, options.log_start, imported))
    leave(0)


def _closing(descriptor: int | None) -> Callable[[], object]:
    """Closes the descriptor when it is called; no process that this one starts keeps it open."""
    if descriptor is None:
        return lambda: None
    os.set_inheritable(descriptor, False)
    return partial(os.close, descriptor)


def run(
    job_id: str,
    owner: str,
    watch: Sequence[int],
    pool: DevicePool | None = None,
    log_start: int | None = None,
    imported: Callable[[], object] = lambda: None,
) -> int:
    """Claims the job and runs it until a descriptor in `watch` becomes readable.

    Returns the exit code: 0 when there was nothing to do or the job ended normally, 1 after an error, which is then
    the last line of the log. The row also has it, unless it could not be written or another worker has the job.
    """
    settings = get_settings()
    try:
        claim = take(settings, job_id, owner, pool, log_start)
    except Problem as problem:  # also where its GPUs were leased to another job meanwhile
        print(problem, flush=True)
        return 0  # not started: no attempt is lost
    if claim is None:
        return 0
    prepare_process(settings.threads)
    settings = see_only([gpu.visible for gpu in claim.gpus], settings)
    if claim.gpu_share < 1:  # of one GPU, which one process uses
        settings = settings.model_copy(update={"processes": 1})
    part = "" if claim.gpu_share == 1 else f" ({claim.gpu_share:g} of it)"
    on_gpus = f" on GPU {','.join(gpu.number for gpu in claim.gpus)}{part}" if claim.gpus else ""
    print(f"Attempt {claim.attempt} by {owner}{on_gpus}.", flush=True)
    log = Log()
    try:
        for event in attempt(claim, settings, end_process, watch, imported):
            log.see(event)
    except Problem as problem:
        _print(str(problem))
    except Exception:
        _print(traceback.format_exc().rstrip())
    else:
        return 0
    return 1


def see_only(addresses: Sequence[str], settings: Settings) -> Settings:
    """Hides all other GPUs from this process and from those that it starts; the settings for what is left.

    `cuda:3` is then `cuda`: the GPUs that are left are numbered from 0.
    """
    if not addresses or settings.launcher != "local":  # those of other machines
        return settings
    os.environ[VISIBLE] = ",".join(addresses)
    if not settings.device.startswith("cuda:"):
        return settings
    os.environ["WORKBENCH_DEVICE"] = "cuda"
    return settings.model_copy(update={"device": "cuda"})


class Log:
    """Prints what the job needs, and a progress line every few seconds."""

    def __init__(self) -> None:
        self._printed_at = float("-inf")

    def see(self, event: Event) -> None:
        now = time.monotonic()
        if isinstance(event, Requirements):
            _print(f"{time.strftime('%H:%M:%S')} {event.sentence}")
        elif isinstance(event, Progress | Step) and now - self._printed_at >= LOG_SECONDS:
            self._printed_at = now
            _print(f"{time.strftime('%H:%M:%S')} {sentence(event)}")


def _print(text: str) -> None:
    with suppress(OSError):  # a full disk must not end the job through its log
        print(text, flush=True)


def watch_signals() -> int:
    """A descriptor that becomes readable at a stop signal, even while C code runs."""
    source, sink = os.pipe()
    os.set_blocking(sink, False)
    signal.set_wakeup_fd(sink, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return source


def end_process() -> NoReturn:
    """Kills this process and its children."""
    if os.getsid(0) == os.getpid():
        end_session(os.getpid())
    _signal_group(signal.SIGKILL)
    os._exit(1)


def leave(code: int) -> NoReturn:
    """Ends this process and its children with an exit code, without waiting for threads."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _signal_group(signal.SIGTERM)
    os._exit(code)


def _signal_group(number: signal.Signals) -> None:
    if os.getsid(0) == os.getpid():  # else the group is a terminal's, or the caller's
        os.killpg(0, number)


if __name__ == "__main__":
    main()
