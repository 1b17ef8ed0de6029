"""Many processes at one registry: nothing runs twice, nothing fails, nothing is lost. On both databases."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from workbench.errors import LeaseLostError
from workbench.job_records import jobs, leases
from workbench.kinds.training.make_seed import MakeSeed
from workbench.registry.database import reading, transaction
from workbench.schema.tables import Artifact, Mixture
from workbench.store import artifacts
from workbench.store.storage import Storage, get_storage

NUM_PROCESSES = 8
SPEC = MakeSeed(name="seed", domains=["law"])
fork = get_context("fork")


def run_together(work: Callable[..., None], *arguments: Any) -> None:
    others = [fork.Process(target=work, args=(number, *arguments)) for number in range(NUM_PROCESSES)]
    for one in others:
        one.start()
    for one in others:
        one.join(60)
    assert [one.exitcode for one in others] == [0] * NUM_PROCESSES


def new_jobs(count: int, chained: bool = False) -> list[str]:
    made: list[str] = []
    with transaction() as session:
        for _ in range(count):
            made.append(jobs.create_job(session, SPEC, after=made[-1:] if chained else ()))
    return made


def deliver_all(number: int, ids: Sequence[str], log: Path, rounds: int) -> None:
    """Every job is delivered to every process, several times, in an order of its own."""
    order = list(ids) * rounds
    random.Random(number).shuffle(order)
    for job_id in order:
        with transaction() as session:
            fence = leases.claim(session, job_id, f"process {number}", 30, 3)
        if fence is None:
            continue
        with log.open("a") as file:
            file.write(job_id + "\n")
        with transaction() as session:
            session.add(Mixture(name=f"made by {job_id}"))
            leases.finish(session, job_id, fence, "done", result={"by": number})


@pytest.mark.usefixtures("registry")
def test_a_job_delivered_many_times_to_many_workers_runs_once(tmp_path: Path) -> None:
    ids = new_jobs(20)
    run_together(deliver_all, ids, tmp_path / "log", 2)
    assert sorted((tmp_path / "log").read_text().split()) == sorted(ids)
    with reading() as session:
        assert {card.state for card in jobs.list_jobs(session)} == {"done"}
        assert len(session.scalars(select(Mixture)).all()) == len(ids)


@pytest.mark.usefixtures("registry")
def test_a_chain_of_jobs_runs_in_its_order_whoever_runs_it(tmp_path: Path) -> None:
    ids = new_jobs(4, chained=True)
    run_together(deliver_all, ids, tmp_path / "log", 4)
    ran = (tmp_path / "log").read_text().split()
    assert ran == ids[: len(ran)]


def race(number: int, job_id: str) -> None:
    """Everybody does everything to one job; whoever is refused goes on."""
    generator = random.Random(number)
    for _ in range(6):
        with transaction() as session:
            fence = leases.claim(session, job_id, f"process {number}", generator.choice([0.0, 30.0]), 10_000)
        if fence is None:
            continue
        try:
            with transaction() as session:
                leases.record(session, job_id, fence, progress=0.5, metrics=[("loss", number, 1.0)])
            with transaction() as session:
                leases.expire(session, generator.choice([0.0, 1e12]), 10_000)
                leases.release(session, job_id, fence)
        except LeaseLostError:
            continue


@pytest.mark.usefixtures("registry")
def test_each_fence_is_issued_once(tmp_path: Path) -> None:
    assert tmp_path
    (job,) = new_jobs(1)
    run_together(race, job)
    with reading() as session:
        shown = [event.message for event in jobs.events(session, job)]
        attempts = [event.attempt for event in jobs.events(session, job) if event.message.startswith("Started")]
    assert shown[0] == "Queued."
    assert attempts == list(range(1, len(attempts) + 1))


def write_names(number: int) -> None:
    for one in range(15):
        with transaction() as session:
            session.add(Mixture(name=f"{number}/{one}"))


@pytest.mark.usefixtures("registry")
def test_many_writers_lose_nothing() -> None:
    run_together(write_names)
    with reading() as session:
        assert len(session.scalars(select(Mixture)).all()) == NUM_PROCESSES * 15


def make_one(_number: int, storage: Storage) -> None:
    id = uuid.uuid4().hex
    with storage.new(id) as folder:
        (folder / "tokens").write_text("the same for everybody")
    with transaction() as session:
        artifacts.register_artifact(session, storage, id, "tokens", key="tokens:law")


@pytest.mark.usefixtures("registry")
def test_of_what_many_made_for_one_key_the_first_is_registered() -> None:
    storage = get_storage()
    run_together(make_one, storage)
    with reading() as session:
        (row,) = session.scalars(select(Artifact)).all()
        storage.kept(row).check()
