"""What a worker does around a runner: chooses jobs, takes them back when their process dies, ends what is left."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from world import HERE, RunningWorkbench, create, eventually

from jobs.attempt import runner
from jobs.queue import submit, tasks
from jobs.queue.choosing import choose_job
from jobs.queue.scheduler import LeaseReaper
from jobs.queue.tasks import StartSignal
from jobs.uploads import uploads_folder
from workbench.job_records import jobs as rows
from workbench.kinds.data import ImportCorpus
from workbench.registry import database
from workbench.schema.job_tables import Job
from workbench.settings import Settings

pytestmark = pytest.mark.usefixtures("tiny_runner")


@pytest.mark.parametrize("moment", ["before it is claimed", "after its end"])
def test_a_job_that_is_deleted_while_its_process_starts_or_ends_keeps_no_other_waiting(
    servers: RunningWorkbench, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    deleted, other = create("problem", priority=5), create()
    real = tasks.run_process

    def delete(job_id: str) -> None:
        with database.transaction() as session:
            if rows.get_job(session, job_id).state == "queued":
                rows.request_stop(session, job_id, "cancel")
            assert rows.delete_job(session, job_id)

    def run_process(settings: Settings, job_id: str, owner: str) -> tasks.Exit:
        if job_id == deleted and moment == "before it is claimed":
            delete(job_id)
        end = real(settings, job_id, owner)
        if job_id == deleted and moment == "after its end":
            delete(job_id)
        return end

    monkeypatch.setattr(tasks, "run_process", run_process)
    tasks.run(deleted)
    assert servers.card(other).state == "done"


@pytest.mark.parametrize("store", ["", "file:///mnt/shared"])
def test_with_a_shared_store_a_worker_leaves_jobs_that_read_an_upload_of_another_machine(
    servers: RunningWorkbench, tmp_path: Path, store: str
) -> None:
    settings = servers.settings.model_copy(update={"store": store})
    there, here = (uploads_folder(home) / uuid.uuid4().hex for home in (tmp_path / "there", settings.root))
    here.mkdir(parents=True)
    with database.transaction() as session:
        foreign, own = (rows.create_job(session, ImportCorpus(name="c", path=str(path))) for path in (there, here))
    plain = create()
    with choose_job(settings) as first, choose_job(settings) as second, choose_job(settings) as third:
        assert [first, second, third] == ([own, plain, None] if store else [foreign, own, plain])


@pytest.mark.parametrize(
    ("change", "fault"),
    [({"new_knob": 1}, "new_knob: there is no such field"), ({"kind": "new_kind"}, "kind: is unknown: 'new_kind'")],
)
def test_a_worker_leaves_a_job_of_a_newer_version_queued_and_names_it_once(
    servers: RunningWorkbench, capsys: pytest.CaptureFixture[str], change: dict[str, object], fault: str
) -> None:
    newer, plain = create(priority=5), create()
    with database.transaction() as session:
        job = session.get_one(Job, newer)
        job.spec, job.kind = job.spec | change, str(change.get("kind", job.kind))
    tasks.run(newer)
    tasks.run(newer)
    assert (servers.card(newer).state, servers.card(plain).state) == ("queued", "done")
    reason = f"Waits for a newer worker, or one with its plug-in: its spec cannot be read here ({fault})."
    assert servers.card(newer).waits_for == reason
    assert capsys.readouterr().err == f"Job {newer} stays queued. {reason}\n"


def test_one_call_runs_all_that_waits_the_most_urgent_first(servers: RunningWorkbench) -> None:
    later, urgent = create(), create(priority=5)
    dependent = create(after=[urgent])
    tasks.run(later)
    cards = [servers.card(job_id) for job_id in (urgent, later, dependent)]
    assert [card.state for card in cards] == ["done"] * 3
    assert cards[0].started_at < cards[1].started_at < cards[2].started_at  # type: ignore[operator]


def test_a_call_for_a_job_that_is_done_starts_no_process(
    servers: RunningWorkbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = create()
    tasks.run(job_id)
    monkeypatch.setattr(tasks, "run_process", None)
    tasks.run(job_id)
    assert servers.num_starts(job_id) == 1


def test_two_slots_of_a_worker_choose_different_jobs(servers: RunningWorkbench) -> None:
    job_ids = [create(), create()]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(tasks.run, job_ids))
    assert [servers.card(job_id).attempt for job_id in job_ids] == [1, 1]
    assert sum(event.startswith("Started") for job_id in job_ids for event in servers.events(job_id)) == 2


def test_a_crash_counts_as_an_attempt_and_the_last_one_fails_with_its_cause(servers: RunningWorkbench) -> None:
    """The log has the traceback, even of a crash in C code."""
    job_id = create("abort")
    tasks.run(job_id)
    card = servers.card(job_id)
    assert (card.state, card.attempt, servers.num_starts(job_id)) == ("failed", 3, 3)
    assert card.error == "Its process was ended by SIGABRT in attempt 3 of 3."
    assert "log.txt" in card.next_step
    assert "Back in the queue: Its process was ended by SIGABRT in attempt 1 of 3." in servers.events(job_id)
    log = (servers.settings.jobs_folder / job_id / "log.txt").read_text()
    assert "Fatal Python error: Aborted" in log
    assert "_misbehave" in log


def test_what_a_dead_process_started_is_ended_too(servers: RunningWorkbench) -> None:
    before = set(psutil.pids())
    job_id = create("orphans")
    tasks.run(job_id)
    card = servers.card(job_id)
    assert (card.state, card.attempt) == ("paused", 3)  # killed as by a system without memory: it waits for that
    assert "SIGKILL (perhaps the memory ran out)" in card.error
    assert card.next_step.startswith("Resume the job when memory is free")
    left = [process for process in psutil.process_iter(["cmdline"]) if process.pid not in before]
    assert not [one for one in left if one.info["cmdline"] == ["sleep", "3600"]]


def test_a_runner_that_cannot_start_fails_the_job_and_says_so(
    servers: RunningWorkbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "RUNNER", [sys.executable, "-c", "import no_such_module"])
    job_id = create()
    tasks.run(job_id)
    card = servers.card(job_id)
    words = "ModuleNotFoundError: No module named 'no_such_module'"
    assert (card.state, card.error) == ("failed", f"Its process ended with code 1 in attempt 3 of 3: {words}")
    assert "no_such_module" in (servers.settings.jobs_folder / job_id / "log.txt").read_text()


def test_an_outcome_that_could_not_be_written_is_reported_by_the_worker(servers: RunningWorkbench) -> None:
    job_id = create("unwritable")
    tasks.run(job_id)
    card = servers.card(job_id)
    assert card.state == "failed"
    assert card.error == "Its process ended with code 1 in attempt 3 of 3: ValueError: the ending cannot be written"


def test_a_worker_that_stops_starts_nothing_more(servers: RunningWorkbench) -> None:
    job_id = create()
    tasks.stop_runners()
    tasks.run(job_id)
    assert (servers.card(job_id).state, servers.num_starts(job_id)) == ("queued", 0)


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
