"""The runner's process against other processes: killed, stopped, doubled, deaf, left behind."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest
from world import HERE, RunningWorkbench, create, eventually

from jobs.attempt.attempt import new_owner, run_here
from jobs.queue import submit
from workbench.errors import JobError
from workbench.job_records import leases
from workbench.registry import database


def started(servers: RunningWorkbench, job_id: str, *arguments: str) -> subprocess.Popen[bytes]:
    """A runner that has begun its work."""
    process = servers.start("tiny_runner.py", job_id, *arguments)
    eventually(lambda: servers.num_starts(job_id), story=lambda: str(servers.card(job_id)))
    return process


def test_a_job_delivered_five_times_runs_once(servers: RunningWorkbench) -> None:
    job_id = create()
    runners = [servers.start("tiny_runner.py", job_id) for _ in range(5)]
    assert [process.wait(60) for process in runners] == [0] * 5
    assert (servers.num_starts(job_id), servers.num_effects(job_id)) == (1, 1)
    assert servers.card(job_id).attempt == 1


def test_a_second_delivery_is_quiet_and_wakes_no_torch(servers: RunningWorkbench) -> None:
    job_id = create()
    list(run_here(job_id))
    command = [sys.executable, "-X", "importtime", "-m", "jobs.attempt.runner", job_id]
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert again.stdout == ""
    assert "sqlalchemy" in again.stderr
    assert not [line for line in again.stderr.splitlines() if line.endswith((" torch", " transformers"))]
    assert servers.num_effects(job_id) == 1


def test_a_runner_that_slept_through_its_lease_writes_nothing_and_exits(servers: RunningWorkbench) -> None:
    job_id = create("held")
    first = started(servers, job_id)
    first.send_signal(signal.SIGSTOP)
    servers.wait_for(job_id, "interrupted")
    with database.transaction() as session:
        leases.expire(session, time.time(), servers.settings.max_attempts)
    servers.release()
    second = servers.start("tiny_runner.py", job_id)
    done = servers.wait_for(job_id, "done")
    first.send_signal(signal.SIGCONT)
    assert first.wait(60) != 0
    assert second.wait(60) == 0
    assert servers.card(job_id) == done
    assert (servers.num_effects(job_id), servers.row(job_id).fence) == (1, 2)


def test_a_runner_that_wakes_while_another_works_leaves_its_job_untouched(servers: RunningWorkbench) -> None:
    job_id = create("held")
    first = started(servers, job_id)
    first.send_signal(signal.SIGSTOP)
    servers.wait_for(job_id, "interrupted")
    second = servers.start("tiny_runner.py", job_id)  # takes a lapsed lease without anybody's help
    eventually(lambda: servers.num_starts(job_id) == 2)
    first.send_signal(signal.SIGCONT)
    assert first.wait(60) != 0
    assert servers.card(job_id).state == "running"
    servers.release()
    servers.wait_for(job_id, "done")
    assert servers.row(job_id).fence == 2
    assert (second.wait(60), servers.num_effects(job_id)) == (0, 1)


def test_a_job_that_does_not_listen_is_ended_with_its_process(servers: RunningWorkbench) -> None:
    job_id = create("deaf")
    process = started(servers, job_id)
    submit.request_stop(job_id, "cancel")
    assert process.wait(10) != 0  # as the README promises; its work would take an hour
    servers.wait_for(job_id, "cancelled")
    assert "It did not stop in time and was ended." in servers.events(job_id)


def test_cancelled_at_any_moment_the_process_is_gone(servers: RunningWorkbench, chance: random.Random) -> None:
    """Before the claim, while working, against the finish: one terminal state, and nobody works any more."""
    job_ids = [create() for _ in range(6)]
    runners = [servers.start("tiny_runner.py", job_id) for job_id in job_ids]
    moments = sorted((chance.uniform(0, 4), job_id) for job_id in job_ids)
    start = time.monotonic()
    for moment, job_id in moments:
        time.sleep(max(0.0, start + moment - time.monotonic()))
        with suppress(JobError):  # it is done already
            submit.request_stop(job_id, "cancel")
    for job_id, process in zip(job_ids, runners, strict=True):
        state = servers.wait_for(job_id, "cancelled", "done").state
        assert process.wait(60) == 0
        assert servers.num_effects(job_id) == (state == "done")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_brings_the_job_back_to_the_queue_without_an_attempt_lost(
    servers: RunningWorkbench, number: int
) -> None:
    job_id = create(steps=1000)
    process = started(servers, job_id)
    process.send_signal(number)
    assert process.wait(60) == 0
    card = servers.card(job_id)
    assert (card.state, card.attempt) == ("queued", 0)
    assert servers.events(job_id)[-1] == "Back in the queue: Its worker was stopped."


def test_a_runner_whose_worker_is_gone_stops_and_keeps_its_work(servers: RunningWorkbench) -> None:
    job_id = create(steps=1000)
    source, sink = os.pipe()
    command = [sys.executable, str(HERE / "tiny_runner.py"), job_id, "--owner", new_owner(), "--lifeline", str(source)]
    process = subprocess.Popen(command, pass_fds=[source], start_new_session=True)
    servers.processes.append(process)
    os.close(source)
    eventually(lambda: servers.num_starts(job_id))
    os.close(sink)
    assert process.wait(60) == 0
    assert servers.card(job_id).state == "queued"
    assert int((servers.settings.jobs_folder / job_id / "work" / "step").read_text()) > 0


def test_a_deaf_job_whose_worker_is_gone_does_not_run_for_ever(servers: RunningWorkbench) -> None:
    job_id = create("deaf")
    process = started(servers, job_id)
    process.terminate()
    assert process.wait(60) != 0
    assert servers.card(job_id).state == "queued"


def test_a_job_whose_home_was_removed_does_not_run_for_ever(servers: RunningWorkbench) -> None:
    job_id = create(steps=100_000)
    process = started(servers, job_id)
    shutil.rmtree(servers.settings.root)
    process.wait(60)  # its work would take a quarter of an hour
