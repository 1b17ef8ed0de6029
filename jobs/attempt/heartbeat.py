"""The thread beside the work: signs of life, news for the row, and the end when it is time.

It renews the lease, writes about once a second, and learns why the work should stop: the row asks for it, the
worker is gone (its pipe has closed), a signal came, or the registry has been silent for a whole lease.
The thread that works looks at `stop` between two events. If it does not stop in time, its process is ended.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType

from jobs.attempt.finish import finish, renew_lease, write_update
from jobs.attempt.outcomes import STOPPED
from jobs.attempt.reporting import JobMessage, JobUpdate, Reporter
from jobs.attempt.work import Claim
from workbench.errors import DiskFull, LeaseLost, RegistryAway
from workbench.job_records import jobs as rows
from workbench.registry import database
from workbench.settings import Settings

LOOK_SECONDS = 1.0


class Heartbeat:
    """Use it as a context around the work. `hard_exit` ends this process at once and does not return."""

    def __init__(
        self,
        claim: Claim,
        settings: Settings,
        reporter: Reporter,
        hard_exit: Callable[[], object],
        watch: Sequence[int] = (),
    ) -> None:
        self.stop = ""  # cancel, pause, shutdown or silence
        self.error: Exception | None = None
        self._claim, self._settings, self._reporter, self._hard_exit = claim, settings, reporter, hard_exit
        self._watch = list(watch)
        self._over = threading.Event()
        self._writing = threading.Lock()
        self._wake_read, self._wake_write = os.pipe()
        self._renewed_at = time.time()  # the wall clock, which also runs while a laptop sleeps
        self._deadline = float("inf")
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)

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
        """Whether nobody else can have taken the job over yet."""
        return time.time() - self._renewed_at < self._settings.lease_seconds

    def flush(self) -> None:
        """Writes all news now, so that no checkpoint is ahead of the curve; what cannot be written waits."""
        self._beat(now=True)

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                self._look()
                if not self._over.is_set():
                    self._beat()
                    self._enforce()
        except Exception as error:  # our own mistake: without a pulse the work must not go on
            self.error = error
            if not self._over.wait(self._settings.cancel_seconds):
                self._hard_exit()

    def _look(self) -> None:
        """Waits a second, or until there is a reason to act."""
        seconds = min(LOOK_SECONDS, self._settings.heartbeat_seconds / 2)
        ready, _, _ = select.select([self._wake_read, *self._watch], [], [], seconds)
        for source in set(ready) & set(self._watch):
            self._watch.remove(source)
            self._ask("shutdown")

    def _ask(self, reason: str) -> None:
        if self.stop not in ("", reason) and reason != "cancel":
            return  # the first reason stands, except that a cancel is stronger
        if not self.stop:
            self._deadline = time.monotonic() + self._settings.cancel_seconds
        self.stop = reason

    def _beat(self, now: bool = False) -> None:
        with self._writing:
            self._beat_alone(now)

    def _beat_alone(self, now: bool) -> None:
        news = self._reporter.take()
        try:
            asked = self._write(news) if news or now or self._is_due() else self._read()
        except LeaseLost:
            self._hard_exit()
            raise
        except (RegistryAway, DiskFull):
            self._reporter.put_back(news)
            if not self.has_lease():
                self._ask("silence")
            return
        if asked:
            self._ask(asked)

    def _is_due(self) -> bool:
        patience = min(self._settings.heartbeat_seconds, self._settings.lease_seconds / 3)
        return time.time() - self._renewed_at >= patience

    def _write(self, news: JobUpdate) -> str:
        """One short write: the news and the lease; gives the row's wish to stop."""
        before = time.time()
        with database.transaction(self._settings) as session:
            asked = renew_lease(session, self._claim, self._settings)
            write_update(session, self._claim, news)
        self._renewed_at = before
        return asked

    def _read(self) -> str:
        with database.reading(self._settings) as session:
            return rows.get_job(session, self._claim.job_id).stop_requested

    def _enforce(self) -> None:
        """Ends a process that did not stop in time: first the row, then the process."""
        if time.monotonic() < self._deadline:
            return
        if self.stop in STOPPED:
            news = replace(self._reporter.take(), messages=(JobMessage("It did not stop in time and was ended."),))
            finish(self._claim, self._settings, STOPPED[self.stop], news)
        self._hard_exit()
