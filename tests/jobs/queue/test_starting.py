"""A process whose start takes longer than a lease keeps its job; one that hangs is found."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from tiny_kind import job_spec
from world import HERE, RunningWorkbench, eventually

from jobs.attempt import runner
from jobs.queue import submit, tasks
from jobs.queue.scheduler import LeaseReaper
from jobs.queue.tasks import StartSignal
from workbench.job_records import jobs as rows
from workbench.registry import database


@pytest.fixture
def pipe(servers: RunningWorkbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Runners stand still in an import, in which no heartbeat is possible, for each until a byte is written here."""
    assert servers
    os.mkfifo(path := tmp_path / "import")
    monkeypatch.setenv("TEST_IMPORT_PIPE", str(path))
    monkeypatch.setattr(tasks, "RUNNER", [sys.executable, str(HERE / "slow_runner.py")])
    descriptor = os.open(path, os.O_RDWR)
    yield descriptor
    os.close(descriptor)


def create() -> str:
    with database.transaction() as session:
        return rows.create_job(session, job_spec())


@contextmanager
def importing(servers: RunningWorkbench, pipe: int, job_id: str) -> Iterator[None]:
    """A worker runs the job, whose process imports its work until the block ends."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(tasks.run, job_id)
        try:
            eventually(lambda: servers.row(job_id).state == "running")
            yield
        finally:
            os.write(pipe, b"...")
        running.result()


def test_a_job_whose_import_outlasts_its_lease_is_not_taken_from_its_process(
    servers: RunningWorkbench, pipe: int
) -> None:
    job_id, reaper, settings = create(), LeaseReaper(servers.settings), servers.settings
    with importing(servers, pipe, job_id):
        first_until = servers.row(job_id).lease_until or 0.0

        def has_outlasted_two_leases() -> bool:
            reaper.reap()
            row = servers.row(job_id)
            assert row.state == "running", servers.events(job_id)
            return (row.lease_until or 0.0) > first_until + 2 * settings.lease_seconds

        eventually(has_outlasted_two_leases)
    card = servers.card(job_id)
    assert (card.state, card.attempt, servers.num_starts(job_id)) == ("done", 1, 1)


def test_a_job_that_is_cancelled_while_its_process_imports_is_cancelled(servers: RunningWorkbench, pipe: int) -> None:
    job_id, reaper = create(), LeaseReaper(servers.settings)
    with importing(servers, pipe, job_id):
        submit.request_stop(job_id, "cancel")
        eventually(lambda: reaper.reap() or servers.card(job_id).state == "cancelled")
    assert servers.num_starts(job_id) == 0


def test_a_process_that_hangs_in_an_import_is_ended_and_counts_as_an_attempt(
    servers: RunningWorkbench, pipe: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pipe
    monkeypatch.setattr(tasks, "START_SECONDS", 1.5)
    job_id = create()
    tasks.run(job_id)
    card = servers.card(job_id)
    error = "Its process did not begin its work within 1.5 s and was ended in attempt 3 of 3."
    assert (card.state, card.error, servers.num_starts(job_id)) == ("failed", error, 0)
    assert servers.runners(job_id) == []


def test_the_signal_is_given_although_a_child_of_the_process_lives_on() -> None:
    """As a tracker's server may, which starts before the work is imported."""
    with StartSignal() as started:
        os.set_inheritable(started.sink, True)  # as it is in the process that was started with it
        imported = runner._closing(started.sink)
        child = subprocess.Popen(["sleep", "60"], close_fds=False)
        try:
            assert not started.wait(0)
            imported()
            started.sink = -1
            assert started.wait(0)
        finally:
            child.kill()
            child.wait()
