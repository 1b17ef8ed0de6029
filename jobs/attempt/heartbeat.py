"""A thread that renews a job's lease, writes its updates, and stops it when necessary.

It writes about once a second, and sets `stop` when the row requests it, the worker is gone (its pipe has closed), a
signal came, or the registry did not respond for a full lease. The working thread checks `stop` between events. If it
does not stop in time, its process is ended.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType

from jobs.attempt.finish import STOPPED, finish, write_update
from jobs.attempt.reporting import JobMessage, JobUpdate, Reporter
from jobs.attempt.work import JobClaim
from workbench.errors import DiskFullError, LeaseLostError, RegistryUnavailableError
from workbench.job_records import leases
from workbench.registry import database
from workbench.settings import Settings

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # macOS has only the second, which does the same there


def steady_seconds() -> float:
    """Seconds since the machine started, those included during which it slept."""
    return time.clock_gettime(_CLOCK)


POLL_SECONDS = 1.0


class Heartbeat:
    """A context manager around the work. `hard_exit` ends this process at once and does not return."""

    def __init__(
        self,
        claim: JobClaim,
        settings: Settings,
        reporter: Reporter,
        hard_exit: Callable[[], object],
        watch: Sequence[int] = (),
    ) -> None:
        self.stop = ""  # cancel, pause, shutdown or silence
        self.error: Exception | None = None
        self.reporter = reporter
        self._claim, self._settings, self._hard_exit = claim, settings, hard_exit
        self._watch = list(watch)
        self._over = threading.Event()
        self._writing = threading.Lock()
        self._wake_read, self._wake_write = os.pipe()
        self._renewed_at = steady_seconds()
        self._deadline = float("inf")
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        os.write(self._wake_write, b".")
        self._thread.join()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def has_lease(self) -> bool:
        """True while no other worker can have claimed the job."""
        return steady_seconds() - self._renewed_at < self._settings.lease_seconds

    def flush(self) -> None:
        """Writes the update now, so that no checkpoint is ahead of the curve; if that fails, it is kept for later."""
        self._beat(now=True)

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                self._wait()
                if not self._over.is_set():
                    self._beat()
                    self._enforce()
        except Exception as error:  # a bug: without a heartbeat the work must not continue
            self.error = error
            if not self._over.wait(self._settings.cancel_seconds):
                self._hard_exit()

    def _wait(self) -> None:
        """Waits about a second, or until a watched descriptor becomes readable."""
        seconds = min(POLL_SECONDS, self._settings.heartbeat_seconds / 2)
        ready, _, _ = select.select([self._wake_read, *self._watch], [], [], seconds)
        for source in set(ready) & set(self._watch):
            self._watch.remove(source)
            self._request_stop("shutdown")

    def _request_stop(self, reason: str) -> None:
        if self.stop not in ("", reason) and reason != "cancel":
            return  # the first reason counts, but a cancel overrides it
        if not self.stop:
            self._deadline = time.monotonic() + self._settings.cancel_seconds
        self.stop = reason

    def _beat(self, now: bool = False) -> None:
        with self._writing:
            update = self.reporter.take()
            patience = min(self._settings.heartbeat_seconds, self._settings.lease_seconds / 3)
            is_due = steady_seconds() - self._renewed_at >= patience
            try:
                stop_requested = self._write(update) if update or now or is_due else self._read()
            except LeaseLostError:
                self._hard_exit()
                raise
            except (RegistryUnavailableError, DiskFullError):
                self.reporter.put_back(update)
                if not self.has_lease():
                    self._request_stop("silence")
                return
            if stop_requested:
                self._request_stop(stop_requested)

    def _write(self, update: JobUpdate) -> str:
        """Writes the update and renews the lease in one transaction; returns the requested stop."""
        before = steady_seconds()
        with database.transaction(self._settings) as session:
            stop_requested = leases.renew(session, self._claim.job_id, self._claim.fence, self._settings.lease_seconds)
            write_update(session, self._claim, update)
        self._renewed_at = before
        return stop_requested

    def _read(self) -> str:
        with database.reading(self._settings) as session:
            return leases.stop_request(session, self._claim.job_id)

    def _enforce(self) -> None:
        """Ends a process that did not stop in time, after writing the row."""
        if time.monotonic() < self._deadline:
            return
        if self.stop in STOPPED:
            update = replace(self.reporter.take(), messages=(JobMessage("It did not stop in time and was ended."),))
            finish(self._claim, self._settings, STOPPED[self.stop], update)
        self._hard_exit()
