"""A real Celery worker on the folder queue: jobs arrive, and survive whatever ends the worker or the queue."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time

import pytest
from tiny_kind import wish
from world import House, eventually

from jobs.queue import submit
from jobs.queue.scheduler import Scheduler
from workbench.job_records import jobs as rows
from workbench.registry import database


@pytest.fixture
def worker(house: House) -> subprocess.Popen[bytes]:
    return house.start("tiny_worker.py")


def test_a_submitted_job_is_done(house: House, worker: subprocess.Popen[bytes]) -> None:
    job_id = submit.submit(wish())
    cards = list(submit.wait(job_id, 0.1))
    assert next(card.state for card in cards if card.state != "queued") == "running"
    assert cards[-1].state == "done"
    assert house.num_effects(job_id) == 1
    worker.terminate()
    assert worker.wait(10) == 0


def test_with_two_slots_a_quick_job_does_not_wait_behind_a_long_one(house: House) -> None:
    house.start("tiny_worker.py", WORKBENCH_WORKER_SLOTS="2")
    long = submit.submit(wish(steps=2000))
    house.wait_for(long, "running")
    quick = submit.submit(wish())
    house.wait_for(quick, "done")
    assert house.card(long).state == "running"


def test_the_job_outlives_its_process_killed_again_and_again(house: House, chance: random.Random) -> None:
    house.start("tiny_worker.py", WORKBENCH_MAX_ATTEMPTS="20")
    job_id = submit.submit(wish(milliseconds=20))
    for number in range(1, 4):
        eventually(lambda number=number: house.row(job_id).fence >= number)  # type: ignore[misc]
        time.sleep(chance.uniform(0, 0.8))
        for process in house.runners(job_id):
            process.kill()
    house.wait_for(job_id, "done")
    assert house.num_effects(job_id) == 1
    assert house.num_starts(job_id) <= house.row(job_id).fence <= 4
    assert any("SIGKILL" in event for event in house.events(job_id))


def test_a_job_killed_after_each_new_checkpoint_uses_up_no_attempts(house: House) -> None:
    house.start("tiny_worker.py", WORKBENCH_MAX_ATTEMPTS="2")
    job_id = submit.submit(wish(steps=100, milliseconds=50))
    for number in range(1, 5):
        eventually(lambda number=number: checkpoints(house, job_id) == number)  # type: ignore[misc]
        for process in house.runners(job_id):
            process.kill()
    assert house.wait_for(job_id, "done").error == ""
    assert sum("SIGKILL" in event for event in house.events(job_id)) == 4


def checkpoints(house: House, job_id: str) -> int:
    """Events of checkpoints; an attempt tells one a minute, the first one at once."""
    return sum(event.startswith("Checkpoint at step") for event in house.events(job_id))


def test_a_killed_worker_leaves_no_runner_and_the_next_one_goes_on(
    house: House, worker: subprocess.Popen[bytes]
) -> None:
    job_id = submit.submit(wish(milliseconds=30))
    eventually(lambda: house.num_starts(job_id))
    worker.kill()
    card = house.wait_for(job_id, "queued")
    eventually(lambda: not house.runners(job_id))
    assert card.attempt == 0  # it went back in order
    house.start("tiny_worker.py")
    assert house.wait_for(job_id, "done").result["steps"] == 100
    assert (house.num_starts(job_id), house.num_effects(job_id)) == (2, 1)


def test_worker_and_runner_killed_together_the_job_goes_on(house: House, worker: subprocess.Popen[bytes]) -> None:
    house.start("jobs.queue.scheduler")
    job_id = submit.submit(wish(milliseconds=30))
    eventually(lambda: house.num_starts(job_id))
    worker.kill()
    house.runners(job_id)[0].kill()
    assert house.card(job_id).state == "running"
    house.wait_for(job_id, "queued", seconds=10)
    house.start("tiny_worker.py")
    house.wait_for(job_id, "done")
    assert (house.row(job_id).fence, house.num_effects(job_id)) == (2, 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_is_stopped_leaves_no_process_and_loses_no_attempt(
    house: House, worker: subprocess.Popen[bytes], number: signal.Signals
) -> None:
    job_id = submit.submit(wish(steps=1000))
    eventually(lambda: house.num_starts(job_id))
    os.killpg(worker.pid, number)  # as honcho does
    worker.wait(10)
    card = house.card(job_id)
    assert (card.state, card.attempt, house.runners(job_id)) == ("queued", 0, [])
    assert int((house.settings.jobs_folder / job_id / "work" / "step").read_text()) > 0


def test_a_removed_queue_loses_no_job(house: House) -> None:
    job_ids = [submit.submit(wish()) for _ in range(3)]
    shutil.rmtree(house.settings.root / "queue")
    worker = house.start("tiny_worker.py")
    assert [house.wait_for(job_id, "done").attempt for job_id in job_ids] == [1, 1, 1]
    shutil.rmtree(house.settings.root / "queue")  # under the feet of a worker that waits
    later = submit.submit(wish())
    assert house.wait_for(later, "done").attempt == 1
    assert worker.poll() is None


def test_a_hint_that_got_lost_is_sent_again(house: House, worker: subprocess.Popen[bytes]) -> None:
    eventually(lambda: house.settings.root.joinpath("queue").exists())
    time.sleep(0.5)  # the worker has looked for what waits, and sits idle
    with database.transaction() as session:
        job_id = rows.create_job(session, wish())
        rows.mark_sent(session, [job_id], time.time())
    reconciler = Scheduler(house.settings)
    eventually(lambda: reconciler.round() or house.card(job_id).state == "done")
    assert worker.poll() is None
    assert house.num_effects(job_id) == 1


def test_two_workers_share_the_jobs(house: House) -> None:
    for _ in range(2):
        house.start("tiny_worker.py")
    job_ids = [submit.submit(wish(milliseconds=15)) for _ in range(4)]
    assert [house.wait_for(job_id, "done").attempt for job_id in job_ids] == [1] * 4
    owners = {event.rpartition(":")[0] for one in job_ids for event in house.events(one) if "Started" in event}
    assert len(owners) == 2
    assert [house.num_starts(job_id) for job_id in job_ids] == [1] * 4


def test_garbage_in_the_queue_does_not_end_the_worker(house: House, worker: subprocess.Popen[bytes]) -> None:
    queue = house.settings.root / "queue"
    eventually(queue.exists)
    for number, text in enumerate(['{"half', "[]", '{"body": 1}', "null"]):
        (queue / f"{number}.jobs.msg").write_text(text)
    job_id = submit.submit(wish())
    house.wait_for(job_id, "done")
    assert worker.poll() is None
