"""A real Celery worker on the folder queue: jobs arrive, and survive whatever ends the worker or the queue."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import time
from contextlib import closing

import pytest
from tiny_kind import job_spec
from world import RunningWorkbench, create, eventually

from jobs.queue import submit
from jobs.queue.scheduler import Scheduler
from workbench.job_records import jobs as rows
from workbench.registry import database


@pytest.fixture
def worker(servers: RunningWorkbench) -> subprocess.Popen[bytes]:
    return servers.start("tiny_worker.py")


def test_a_submitted_job_is_done(servers: RunningWorkbench, worker: subprocess.Popen[bytes]) -> None:
    job_id = submit.submit(job_spec())
    cards = list(submit.wait(job_id, 0.1))
    assert next(card.state for card in cards if card.state != "queued") == "running"
    assert cards[-1].state == "done"
    assert servers.num_effects(job_id) == 1
    worker.terminate()
    assert worker.wait(60) == 0


def test_a_worker_whose_registry_was_upgraded_ends_with_the_reason(
    servers: RunningWorkbench, capfd: pytest.CaptureFixture[str]
) -> None:
    worker = servers.start("tiny_worker.py")
    first = submit.submit(job_spec())
    servers.wait_for(first, "done")
    with closing(sqlite3.connect(servers.settings.root / "registry.db")) as registry, registry:
        registry.execute("UPDATE alembic_version SET version_num = '9999'")
    job_id = submit.submit(job_spec())
    assert worker.wait(60) == 1
    assert "has version 9999; this workbench needs" in capfd.readouterr().err
    assert servers.card(job_id).state == "queued"


def test_with_two_slots_a_quick_job_does_not_wait_behind_a_long_one(servers: RunningWorkbench) -> None:
    servers.start("tiny_worker.py", WORKBENCH_WORKER_SLOTS="2")
    long = submit.submit(job_spec("held"))
    servers.wait_for(long, "running")
    quick = submit.submit(job_spec())
    servers.wait_for(quick, "done")
    assert servers.card(long).state == "running"
    servers.release()
    servers.wait_for(long, "done")


@pytest.mark.slow
def test_the_job_outlives_its_process_killed_again_and_again(servers: RunningWorkbench, chance: random.Random) -> None:
    servers.start("tiny_worker.py", WORKBENCH_MAX_ATTEMPTS="20")
    job_id = submit.submit(job_spec(milliseconds=20))
    for number in range(1, 4):
        eventually(lambda number=number: servers.row(job_id).fence >= number)  # type: ignore[misc]
        time.sleep(chance.uniform(0, 0.8))
        for process in servers.runners(job_id):
            process.kill()
    servers.wait_for(job_id, "done")
    assert servers.num_effects(job_id) == 1
    assert servers.num_starts(job_id) <= servers.row(job_id).fence <= 4
    assert any("SIGKILL" in event for event in servers.events(job_id))


@pytest.mark.slow
def test_a_job_killed_after_each_new_checkpoint_uses_up_no_attempts(servers: RunningWorkbench) -> None:
    servers.start("tiny_worker.py", WORKBENCH_MAX_ATTEMPTS="2")
    job_id = submit.submit(job_spec(steps=400, milliseconds=50))  # it must outlast four kills, however late they come
    for number in range(1, 5):
        eventually(lambda number=number: checkpoints(servers, job_id) == number)  # type: ignore[misc]
        for process in servers.runners(job_id):
            process.kill()
    assert servers.wait_for(job_id, "done").error == ""
    assert sum("SIGKILL" in event for event in servers.events(job_id)) == 4


def checkpoints(servers: RunningWorkbench, job_id: str) -> int:
    """Events of checkpoints; an attempt tells one a minute, the first one at once."""
    return sum(event.startswith("Checkpoint at step") for event in servers.events(job_id))


@pytest.mark.slow
def test_a_killed_worker_leaves_no_runner_and_the_next_one_goes_on(
    servers: RunningWorkbench, worker: subprocess.Popen[bytes]
) -> None:
    job_id = submit.submit(job_spec(milliseconds=30))
    eventually(lambda: servers.num_starts(job_id))
    worker.kill()
    card = servers.wait_for(job_id, "queued")
    eventually(lambda: not servers.runners(job_id))
    assert card.attempt == 0  # it went back in order
    servers.start("tiny_worker.py")
    assert servers.wait_for(job_id, "done").result["steps"] == 100
    assert (servers.num_starts(job_id), servers.num_effects(job_id)) == (2, 1)


@pytest.mark.slow
def test_worker_and_runner_killed_together_the_job_goes_on(
    servers: RunningWorkbench, worker: subprocess.Popen[bytes]
) -> None:
    servers.start("jobs.queue.scheduler")
    job_id = submit.submit(job_spec("held"))
    eventually(lambda: servers.num_starts(job_id))
    worker.send_signal(signal.SIGSTOP)  # else it would take the job back, or its runner would, once it is dead
    servers.runners(job_id)[0].kill()
    worker.kill()
    servers.release()
    servers.wait_for(job_id, "queued")
    assert servers.events(job_id)[-1] == "Back in the queue: its worker stopped responding."  # its lease was over
    servers.start("tiny_worker.py")
    servers.wait_for(job_id, "done")
    assert (servers.row(job_id).fence, servers.num_effects(job_id)) == (2, 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_is_stopped_leaves_no_process_and_loses_no_attempt(
    servers: RunningWorkbench, worker: subprocess.Popen[bytes], number: signal.Signals
) -> None:
    job_id = submit.submit(job_spec(steps=1000))
    eventually(lambda: servers.card(job_id).progress)  # it has done a step; before, there is nothing to keep
    os.killpg(worker.pid, number)  # as honcho does
    worker.wait(60)
    card = servers.card(job_id)
    assert (card.state, card.attempt, servers.runners(job_id)) == ("queued", 0, [])
    assert int((servers.settings.jobs_folder / job_id / "work" / "step").read_text()) > 0


@pytest.mark.slow
def test_a_removed_queue_loses_no_job(servers: RunningWorkbench) -> None:
    job_ids = [submit.submit(job_spec()) for _ in range(3)]
    shutil.rmtree(servers.settings.root / "queue")
    worker = servers.start("tiny_worker.py")
    assert [servers.wait_for(job_id, "done").attempt for job_id in job_ids] == [1, 1, 1]
    shutil.rmtree(servers.settings.root / "queue")  # under the feet of a worker that waits
    later = submit.submit(job_spec())
    assert servers.wait_for(later, "done").attempt == 1
    assert worker.poll() is None


def test_a_hint_that_got_lost_is_sent_again(servers: RunningWorkbench, worker: subprocess.Popen[bytes]) -> None:
    eventually(lambda: servers.settings.root.joinpath("queue").exists())
    time.sleep(0.5)  # the worker has looked for what waits, and sits idle
    job_id = create()
    with database.transaction() as session:
        rows.mark_sent(session, [job_id], time.time())
    reconciler = Scheduler(servers.settings)
    eventually(lambda: reconciler.round() or servers.card(job_id).state == "done")
    assert worker.poll() is None
    assert servers.num_effects(job_id) == 1


@pytest.mark.slow
def test_two_workers_share_the_jobs(servers: RunningWorkbench) -> None:
    for _ in range(2):
        servers.start("tiny_worker.py")
    job_ids = [submit.submit(job_spec("held")) for _ in range(4)]
    eventually(lambda: [servers.card(job_id).state for job_id in job_ids].count("running") == 2)
    servers.release()
    assert [servers.wait_for(job_id, "done").attempt for job_id in job_ids] == [1] * 4
    owners = {event.rpartition(":")[0] for one in job_ids for event in servers.events(one) if "Started" in event}
    assert len(owners) == 2
    assert [servers.num_starts(job_id) for job_id in job_ids] == [1] * 4


def test_garbage_in_the_queue_does_not_end_the_worker(
    servers: RunningWorkbench, worker: subprocess.Popen[bytes]
) -> None:
    queue = servers.settings.root / "queue"
    eventually(queue.exists)
    for number, text in enumerate(['{"half', "[]", '{"body": 1}', "null"]):
        (queue / f"{number}.jobs.msg").write_text(text)
    job_id = submit.submit(job_spec())
    servers.wait_for(job_id, "done")
    assert worker.poll() is None
