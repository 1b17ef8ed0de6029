"""Keeps the lease of a job while its process starts, whose own heartbeat cannot be relied on until then.

A heartbeat is a thread, which stands still while Python loads a large library: on a busy machine for longer than a
lease. So the worker, which sees that the process lives, renews the lease until the process has imported the work.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from contextlib import suppress

from workbench.errors import DiskFullError, LeaseLostError, NoRegistryError
from workbench.job_records import leases
from workbench.registry import database
from workbench.schema.tables import Job
from workbench.settings import Settings

START_SECONDS = 900.0  # after which a process that has not begun its work is ended: it hangs


class StartSignal:
    """A pipe of which a process closes its end, `sink`, once it has imported its work; its death closes it, too."""

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

    A process that does not begin in START_SECONDS is ended.
    """
    started.drop_sink()
    until = time.monotonic() + START_SECONDS
    seconds = min(settings.heartbeat_seconds, settings.lease_seconds / 3)
    while not started.wait(seconds):
        if time.monotonic() >= until:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            return False
        _renew(settings, job_id, owner)
    return True


def _renew(settings: Settings, job_id: str, owner: str) -> None:
    """Renews the lease if the process has claimed the job; a registry that is away is tried again later.

    A job that was asked to stop is not kept: its process does so, or it is taken back.
    """
    with suppress(NoRegistryError, DiskFullError, LeaseLostError), database.transaction(settings) as session:
        job = session.get(Job, job_id)
        if job and (job.state, job.owner, job.stop_requested) == ("running", owner, ""):
            leases.renew(session, job_id, job.fence, settings.lease_seconds)
