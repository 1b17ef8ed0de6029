"""Jobs that count, with real processes around them, on a clock ten times faster than usual."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for tiny_kind, here and in the processes of the tests

from tiny_kind import tiny_evaluate
from world import HERE, RunningWorkbench

from jobs.queue import tasks
from workbench.kinds.kind import known_kinds
from workbench.settings import get_settings

QUICK = {
    "LEASE_SECONDS": "2",
    "HEARTBEAT_SECONDS": "0.4",
    "RECONCILE_SECONDS": "1",
    "CANCEL_SECONDS": "2",
    "WORKER_SLOTS": "1",
}


@pytest.fixture
def servers(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningWorkbench]:
    """Settings with short intervals; no process that was started with them survives the test."""
    assert home
    for name, value in QUICK.items():
        monkeypatch.setenv(f"WORKBENCH_{name}", value)
    get_settings.cache_clear()
    monkeypatch.setitem(known_kinds(), "evaluate", tiny_evaluate())
    monkeypatch.setattr("jobs.queue.submit.validate_against_registry", lambda *_: None)  # the tiny kind needs nothing
    servers = RunningWorkbench(get_settings())
    yield servers
    for process in servers.processes:
        process.send_signal(signal.SIGCONT)
        process.terminate()
    for process in servers.processes:
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture
def tiny_runner(servers: RunningWorkbench, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Workers and commands start the small runner, which knows the counting kind."""
    assert servers
    monkeypatch.setattr(tasks, "RUNNER", [sys.executable, str(HERE / "tiny_runner.py")])
    yield
    tasks._stopping.clear()


@pytest.fixture
def chance() -> random.Random:
    """Chance that can be had again: pytest shows the seed of a test that failed."""
    seed = int(os.environ.get("CHANCE", random.SystemRandom().randrange(10**6)))
    print(f"CHANCE={seed}")
    return random.Random(seed)
