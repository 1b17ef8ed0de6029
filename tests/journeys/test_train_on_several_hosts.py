"""A joint training on hosts that ssh reaches: one is lost on the way, and another takes its place."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobs.queue.submit import submit
from tests import network
from workbench.job_records import jobs
from workbench.job_records.devices import list_devices
from workbench.kinds.training.train_joint import TrainJoint
from workbench.registry.database import reading

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.skipif(bool(network.missing()), reason=network.missing())]

TRAINING = {"num_steps": 500, "block_size": 32, "learning_rate": 5e-3, "checkpoint_every": 25, "evaluate_every": 250}


@pytest.fixture
def hosts() -> Iterator[list[network.Host]]:
    with network.hosts(3) as made:
        yield made


@pytest.fixture
def workers(hosts, home: Path, tmp_path: Path) -> Iterator[None]:
    """A worker that starts trainings on the hosts, and a scheduler."""
    hostfile = tmp_path / "hosts"
    hostfile.write_text("".join(f"{host.name} slots=2\n" for host in hosts))
    settings = {
        "WORKBENCH_HOME": str(home),
        "WORKBENCH_LAUNCHER": "ssh",
        "WORKBENCH_HOSTFILE": str(hostfile),
        "WORKBENCH_REMOTE_SHELL": " ".join(network.remote_shell(hosts, tmp_path)),
        "WORKBENCH_NODE_ADDRESS": network.ADDRESS,
        "WORKBENCH_LEASE_SECONDS": "12",
        "WORKBENCH_HEARTBEAT_SECONDS": "3",
        "WORKBENCH_RECONCILE_SECONDS": "3",
        "WORKBENCH_THREADS": "1",
    }
    log = (tmp_path / "worker.log").open("ab")
    programs = [
        subprocess.Popen([sys.executable, "-P", "-m", module], env=os.environ | settings, stdout=log, stderr=log)
        for module in ("jobs.queue.worker", "jobs.queue.scheduler")
    ]
    yield
    for program in programs:
        program.terminate()
    for program in programs:
        program.wait(60)
    log.close()


def until(holds: Callable[[], object], seconds: float = 180) -> float:
    """Waits until it holds; the seconds that it took."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() < began + seconds
        time.sleep(0.1)
    return time.monotonic() - began


def test_a_joint_training_goes_on_with_another_host_when_one_is_lost(trained, hosts, workers) -> None:
    spec = TrainJoint(name="far", seed_model="seed", domains=["court", "kitchen"], num_gpus=4, training=TRAINING)
    job_id = submit(spec)

    def steps() -> list[int]:
        with reading() as session:
            return [point.step for point in jobs.metrics(session, job_id, "loss")]

    def shown() -> list[str]:
        with reading() as session:
            return [event.message for event in jobs.events(session, job_id)]

    def holders() -> set[str]:
        with reading() as session:
            return {device.number.split("/")[0] for device in list_devices(session) if device.holders}

    until(lambda: max(steps(), default=0) > 60)
    assert holders() == {hosts[0].name, hosts[1].name}
    last = max(steps())
    hosts[1].cut_off()
    seconds = {"named": until(lambda: any(f"({hosts[1].name})" in one for one in shown()))}
    seconds["another step"] = seconds["named"] + until(lambda: max(steps()) > last + 25)
    print(seconds)
    assert holders() == {hosts[0].name, hosts[2].name}
    until(lambda: jobs_state(job_id) in ("done", "failed"))
    assert jobs_state(job_id) == "done", shown()
    assert sorted(set(steps())) == list(range(1, 501))


def jobs_state(job_id: str) -> str:
    with reading() as session:
        return jobs.get_job(session, job_id).state
