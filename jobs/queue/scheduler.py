"""The scheduler, which recovers lost jobs: `python -P -m jobs.queue.scheduler`.

Every few seconds it returns jobs with an expired lease to the queue and notifies workers of waiting jobs. Any number
may run at the same time. If the registry or the broker is away, the next round tries again.
"""

from __future__ import annotations

import math
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from kombu.exceptions import ChannelError, ConnectionError, KombuError

from engine.errors import Problem
from jobs.attempt.heartbeat import steady_seconds
from jobs.garbage_collection import remove_all_leftovers, sweep, sweep_store
from jobs.queue.app import QUEUE, make_app
from jobs.queue.submit import call_workers
from workbench.errors import RegistryUnavailableError
from workbench.job_records import jobs as rows
from workbench.job_records import leases
from workbench.registry import database
from workbench.registry.backups import back_up_daily
from workbench.registry.comparisons import delete_history
from workbench.registry.database import require_registry
from workbench.schema import database_clock
from workbench.settings import Settings, get_settings
from workbench.store.private_folder import sweep_temporary_files

SWEEP_SECONDS = 3600.0
LEFTOVERS_SECONDS = 20.0
JITTER = 0.2


def main() -> None:
    """Runs until SIGTERM or Ctrl-C."""
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    try:
        settings = get_settings()
    except Problem as problem:  # of the settings
        sys.exit(str(problem))
    with suppress(RegistryUnavailableError):  # it may come later
        require_registry(settings)
    Scheduler(settings).run(over)


class Scheduler:
    """Runs the rounds, with backups and sweeps at longer intervals."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._reaper = LeaseReaper(settings)
        self._swept_at = time.monotonic()
        self._cleaned_at = self._backed_up_at = -math.inf

    def run(self, over: threading.Event) -> None:
        """Runs rounds until `over` is set."""
        while not over.wait(self._settings.reconcile_seconds * random.uniform(1 - JITTER, 1 + JITTER)):
            with _log_problems():
                self.round()

    def round(self) -> None:
        """One round: expired leases, lost messages, and at times leftovers, a backup and a sweep."""
        require_registry(self._settings)  # it may have been upgraded while this scheduler ran
        self._reaper.reap()
        send_due(self._settings, self._settings.reconcile_seconds)
        now = time.monotonic()
        chores: list[Callable[[Settings], object]] = []
        if now - self._cleaned_at >= LEFTOVERS_SECONDS:
            self._cleaned_at = now
            chores.append(remove_all_leftovers)
        if now - self._backed_up_at >= SWEEP_SECONDS:
            self._backed_up_at = now
            chores.append(back_up_daily)
        if now - self._swept_at >= SWEEP_SECONDS:
            self._swept_at = now
            chores += [sweep, sweep_temporary_files, sweep_store, _forget_old]
        for chore in chores:
            with _log_problems():
                chore(self._settings)


def _forget_old(settings: Settings) -> None:
    with database.transaction(settings) as session:
        delete_history(session, older_than_days=settings.history_days)


@contextmanager
def _log_problems() -> Iterator[None]:
    """Logs a problem and continues: the next round tries again."""
    try:
        yield
    except (Problem, OSError) as problem:
        print(f"error: {problem}", file=sys.stderr, flush=True)


class LeaseReaper:
    """Returns jobs with an expired lease to the queue, or fails them after the last attempt."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._reaped_at = steady_seconds()

    def reap(self) -> None:
        """Handles expired leases; to be called every `reconcile_seconds`."""
        if not self._has_slept():
            with database.transaction(self._settings) as session:
                now, settings = database_clock.now(session), self._settings
                leases.expire(session, now, settings.max_attempts, settings.lease_seconds)

    def _has_slept(self) -> bool:
        """True if this machine was just suspended: its jobs must get time to renew their leases."""
        before, self._reaped_at = self._reaped_at, steady_seconds()
        return self._reaped_at - before > self._settings.reconcile_seconds * 2 + self._settings.lease_seconds


def send_due(settings: Settings, resend_seconds: float) -> None:
    """Notifies workers of jobs that waited that long since the last message, unless enough messages are queued."""
    with database.reading(settings) as session:
        ids = rows.due(session, database_clock.now(session), resend_seconds)
    if ids and num_calls(settings) < len(ids):
        call_workers(settings, ids)


def num_calls(settings: Settings) -> int:
    """The number of queued messages; 0 when the broker does not respond."""
    try:
        with make_app(settings).connection_for_read() as connection:
            size: int = connection.default_channel.queue_declare(QUEUE, passive=True).message_count
            return size
    except (KombuError, ChannelError, ConnectionError, OSError):
        return 0


if __name__ == "__main__":
    main()
