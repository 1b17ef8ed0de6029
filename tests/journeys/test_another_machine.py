"""A job whose machine is lost goes on from its last checkpoint on another one, to the same bits.

The two machines share the database and a store; each has a home and a cache of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.events import Step
from jobs.attempt.attempt import run_here
from jobs.attempt.work import JobClaim, Work
from tests.journeys.conftest import Do
from tests.services.s3_server import BUCKET, moto, use
from workbench.errors import StoreFailedError
from workbench.job_records import jobs, leases
from workbench.kinds.kind import parse_spec
from workbench.registry import experts
from workbench.registry.database import reading, transaction
from workbench.schema import database_clock
from workbench.schema.job_states import CHECKPOINT
from workbench.settings import Settings, get_settings
from workbench.store.object_store import ObjectStore, object_store
from workbench.store.storage import get_storage

pytest.importorskip("moto.server")
pytest.importorskip("s3fs")

NEW = {
    "kind": "train-expert",
    "domain": "sea",
    "mixture": "small",
    "join": False,
    "training": {"num_steps": 120, "block_size": 32, "learning_rate": 5e-3, "clip": 1.0, "checkpoint_every": 5},
}


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """A store on a server of S3, which the settings of this machine name."""
    with moto() as server:
        use(server, monkeypatch)
        monkeypatch.setenv("WORKBENCH_STORE", f"s3://{BUCKET}/project")
        object_store.cache_clear()
        one = ObjectStore(f"s3://{BUCKET}/project")
        one._fs.mkdir(BUCKET)
        yield one
        object_store.cache_clear()


def run_until_a_checkpoint(job_id: str) -> None:
    """Starts the job's process on this machine and kills it once a checkpoint counts and more steps are done."""
    process = subprocess.Popen([sys.executable, "-P", "-m", "jobs.attempt.runner", job_id], start_new_session=True)
    until = time.monotonic() + 120
    try:
        while True:
            assert time.monotonic() < until
            assert process.poll() is None
            with reading() as session:
                events, steps = jobs.events(session, job_id), jobs.metrics(session, job_id, "loss")
            if any(event.kind == CHECKPOINT for event in events) and len(steps) > 8:
                return
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait()


def take_back(job_id: str) -> None:
    with transaction() as session:
        assert leases.expire(session, database_clock.now(session) + 1000, 3) == [job_id]


def curve(job_id: str) -> dict[int, float]:
    with reading() as session:
        return {point.step: point.value for point in jobs.metrics(session, job_id, "loss")}


@pytest.mark.slow
def test_a_job_of_a_lost_machine_goes_on_elsewhere_to_the_same_bits(
    trained: Do, home: Path, tmp_path: Path, store: ObjectStore
) -> None:
    get_settings.cache_clear()
    calm = trained({**NEW, "name": "calm"})
    assert calm.state == "done", calm.error
    assert len(list(get_storage().upload_missing())) > 0  # what was made before there was a store
    assert list(get_storage().upload_missing()) == []
    with transaction() as session:
        job_id = jobs.create_job(session, parse_spec({**NEW, "name": "sailor"}))
    run_until_a_checkpoint(job_id)
    take_back(job_id)
    lost = tmp_path / "lost"
    lost.mkdir()
    for name in ("artifacts", "jobs"):
        shutil.move(home / name, lost / name)

    other = Settings(home=tmp_path / "other", database_url=get_settings().database)
    steps = [event.step for event in run_here(job_id, other) if isinstance(event, Step)]

    assert steps[0] > 1
    assert steps[0] % 5 == 1  # the one after a checkpoint
    assert steps[-1] == 120
    assert curve(job_id) == curve(calm.id)
    with reading() as session:
        pair = [experts.get_expert(session, name) for name in ("calm", "sailor")]
    files = [(get_storage(other).path(one.id) / "expert.safetensors").read_bytes() for one in pair]
    assert files[0] == files[1]
    assert not (home / "artifacts").exists()
    assert store.names(f"checkpoints/{job_id}") == set()  # a job that is done needs none


def test_a_job_pauses_while_the_store_is_away_and_then_goes_on(
    trained: Do, home: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert home
    get_settings.cache_clear()
    put, is_away = ObjectStore.put, True

    def fail(self: ObjectStore, path: Path, name: str) -> None:
        if is_away and "checkpoints" in name:
            raise StoreFailedError(f"The store {self.url} does not answer.", "Check it, then resume the job.")
        put(self, path, name)

    monkeypatch.setattr(ObjectStore, "put", fail)
    card = trained({**NEW, "name": "sailor"})
    assert (card.state, card.next_step) == ("paused", "Check it, then resume the job.")
    with reading() as session:
        assert not any(event.kind == CHECKPOINT for event in jobs.events(session, card.id))  # none counts
    is_away = False
    with transaction() as session:
        jobs.resume(session, card.id)
    steps = [event.step for event in run_here(card.id) if isinstance(event, Step)]
    assert steps[0] > 5  # the local checkpoints were not lost
    assert steps[-1] == 120


def work_of(home: Path, store: ObjectStore, fence: int) -> Work:
    return Work(JobClaim("a" * 32, fence, 1, "me"), Settings(home=home, store=store.url))


def test_a_machine_that_had_the_job_before_takes_what_another_one_added(tmp_path: Path, store: ObjectStore) -> None:
    first, second = work_of(tmp_path / "a", store, 1), work_of(tmp_path / "b", store, 2)
    assert first.checkpoints is not None
    assert second.checkpoints is not None
    (first.folder / "step-1").mkdir()
    (first.folder / "step-1" / "weights").write_text("one")
    (first.folder / "inputs.json").write_text("{}")
    first.checkpoints.save(first.folder)
    (first.folder / "step-2").mkdir()  # not uploaded: the machine is lost

    assert second.checkpoints.restore(second.folder) == []
    assert (second.folder / "step-1" / "weights").read_text() == "one"
    shutil.rmtree(second.folder / "step-1")
    (second.folder / "step-3").mkdir()
    (second.folder / "step-3" / "weights").write_text("three")
    second.checkpoints.save(second.folder)
    first.checkpoints.save(first.folder)  # of a lost lease: it changes nothing for others

    again = work_of(tmp_path / "a", store, 3)
    assert again.checkpoints is not None
    again.checkpoints.restore(again.folder)
    assert sorted(path.name for path in again.folder.iterdir()) == [".synced.json", "inputs.json", "step-3"]
    (again.folder / "step-4").mkdir()
    assert again.checkpoints.restore(again.folder) == []
    assert (again.folder / "step-4").is_dir()  # it went on from the newest: nothing is taken away


def test_a_damaged_file_of_a_checkpoint_is_left_out(tmp_path: Path, store: ObjectStore) -> None:
    work = work_of(tmp_path / "a", store, 1)
    assert work.checkpoints is not None
    for step in ("1", "2"):
        (work.folder / f"step-{step}").mkdir()
        (work.folder / f"step-{step}" / "weights").write_text(step)
    work.checkpoints.save(work.folder)
    for name in store.names("checkpoints/" + "a" * 32 + "/files"):
        if store.read(f"checkpoints/{'a' * 32}/files/{name}") == b"2":
            store.write(f"checkpoints/{'a' * 32}/files/{name}", b"X")
    other = work_of(tmp_path / "b", store, 2)
    assert other.checkpoints is not None
    assert other.checkpoints.restore(other.folder) == ["step-2/weights"]
    assert (other.folder / "step-1" / "weights").read_text() == "1"
    assert not (other.folder / "step-2" / "weights").exists()
    assert os.listdir(other.folder.parent) == ["work"]
