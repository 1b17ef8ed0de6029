"""A worker, `python -P -m jobs.queue.worker`: waits for messages and runs jobs, WORKBENCH_WORKER_SLOTS at a time."""

from __future__ import annotations

import os
import socket
import sys
import warnings
from typing import NoReturn

from celery.exceptions import CPendingDeprecationWarning

from engine.errors import Problem
from jobs.queue.choosing import leasing
from jobs.queue.device_registration import register_gpus
from jobs.queue.scheduler import send_due
from jobs.queue.tasks import raise_problem, worker_app
from workbench.errors import RegistryUnavailableError
from workbench.registry.database import require_registry
from workbench.settings import Settings, get_settings
from workbench.store.private_folder import keep_temporary_files, make_private


def main() -> NoReturn:
    """Runs until SIGTERM or Ctrl-C; then running jobs leave a checkpoint and return to the queue."""
    try:
        settings = get_settings()
        prepare(settings)
        keep_temporary_files(settings)
        with register_gpus(settings) as pool, leasing(pool):
            sys.exit(work(settings))
    except Problem as problem:  # of the settings, or of what they name
        sys.exit(str(problem))


def work(settings: Settings) -> int:
    """Takes messages until it is stopped; returns the exit code. Raises the problem that stopped it."""
    worker = worker_app(settings).Worker(
        hostname=f"workbench-{os.getpid()}@{socket.gethostname()}",
        loglevel="WARNING",
        quiet=True,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    )
    worker.start()
    raise_problem()
    return int(worker.exitcode or 0)


def prepare(settings: Settings) -> None:
    """Makes the folders private, checks the registry, and sends messages for jobs that wait already."""
    warnings.filterwarnings("ignore", message="You're running the worker with superuser")  # a message is JSON
    warnings.filterwarnings("ignore", category=CPendingDeprecationWarning)  # about late acknowledgement, which is off
    make_private(settings)
    try:
        require_registry(settings)
        send_due(settings, resend_seconds=0)  # messages may be lost with a worker that was killed
    except RegistryUnavailableError as away:
        print(away, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
