"""A real Redis as the broker: jobs arrive, and a Redis that is emptied or restarted loses none."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "jobs"))

from kombu import Message
from tiny_kind import job_spec

from jobs.queue import submit
from jobs.queue.app import QUEUE, make_app
from jobs.queue.scheduler import num_calls
from workbench.answers.cards import JobCard
from workbench.job_records import jobs as rows
from workbench.registry import database
from workbench.settings import get_settings

BINARY = shutil.which("redis-server")
TINY_WORKER = Path(__file__).parents[1] / "jobs" / "tiny_worker.py"

pytestmark = [
    pytest.mark.redis,
    pytest.mark.skipif(BINARY is None, reason="there is no redis-server on this machine"),
]


@dataclass
class Redis:
    """A server of our own, on loopback, that keeps nothing."""

    port: int
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        assert BINARY is not None
        command = [BINARY, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        until = time.monotonic() + 60
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                assert time.monotonic() < until
                time.sleep(0.05)

    def stop(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()


@pytest.fixture
def redis(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Redis]:
    assert home
    with socket.create_server(("127.0.0.1", 0)) as server:
        redis = Redis(server.getsockname()[1])
    redis.start()
    monkeypatch.setenv("WORKBENCH_BROKER_URL", f"redis://127.0.0.1:{redis.port}/0")
    monkeypatch.setattr("jobs.queue.submit.validate_against_registry", lambda *_: None)  # the tiny kind needs nothing
    monkeypatch.setenv("WORKBENCH_RECONCILE_SECONDS", "1")
    get_settings.cache_clear()
    yield redis
    redis.stop()


@pytest.fixture
def processes(redis: Redis) -> Iterator[None]:
    """A worker and a reconciler."""
    assert redis
    started = [
        subprocess.Popen([sys.executable, *arguments], env=os.environ)
        for arguments in ([str(TINY_WORKER)], ["-m", "jobs.queue.scheduler"])
    ]
    yield
    for process in started:
        process.terminate()
    assert [process.wait(60) for process in started] == [0, 0]


def done(job_id: str, seconds: float = 180) -> JobCard:
    until = time.monotonic() + seconds
    for card in submit.wait(job_id, 0.1):
        assert time.monotonic() < until, card
    return card


@pytest.mark.usefixtures("processes")
def test_a_submitted_job_is_done() -> None:
    job_id = submit.submit(job_spec())
    card = done(job_id)
    assert (card.state, card.attempt) == ("done", 1)
    assert not (get_settings().root / "queue").exists()


@pytest.mark.usefixtures("processes")
def test_a_restarted_redis_loses_no_job(redis: Redis) -> None:
    assert done(submit.submit(job_spec())).state == "done"
    redis.stop()
    job_ids = [submit.submit(job_spec()) for _ in range(2)]
    with database.reading() as session:
        assert {rows.get_job(session, job_id).state for job_id in job_ids} == {"queued"}
    redis.start()
    assert [done(job_id).attempt for job_id in job_ids] == [1, 1]
    assert done(submit.submit(job_spec())).attempt == 1


def test_taking_a_message_cannot_fail_halfway(redis: Redis) -> None:
    """An acknowledgement on its way to a Redis that just went would leave the worker deaf for good."""
    submit.submit(job_spec())
    with make_app(get_settings()).connection_for_read() as connection:
        messages: list[Message] = []
        channel = connection.channel()
        channel.basic_qos(0, 1, False)
        channel.basic_consume(QUEUE, False, messages.append, "tag")
        while not messages:
            connection.drain_events(timeout=60)
        redis.stop()
        messages[0].ack()
        assert channel.qos.can_consume()
    redis.start()


def test_hints_are_counted(redis: Redis) -> None:
    assert num_calls(get_settings()) == 0
    for _ in range(3):
        submit.submit(job_spec())
    assert num_calls(get_settings()) == 3
    redis.stop()
    assert num_calls(get_settings()) == 0
    redis.start()
