"""A process counts only for the home that it works for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ui.serving.processes import WORKER, home_of, runs
from workbench.settings import Settings

# What `python -m jobs.queue.worker` looks like from outside.
LIKE_A_WORKER = [sys.executable, "-c", "input()", "-m", WORKER]


def test_a_worker_counts_only_for_its_own_home(tmp_path: Path) -> None:
    here, elsewhere = Settings(home=tmp_path / "here"), Settings(home=tmp_path / "elsewhere")
    environment = {"WORKBENCH_HOME": str(here.root)}
    with subprocess.Popen(LIKE_A_WORKER, env=environment, stdin=subprocess.PIPE):
        assert runs(WORKER, here)
        assert not runs(WORKER, elsewhere)
    assert not runs(WORKER, here)


@pytest.mark.parametrize(
    ("environment", "home"),
    [({}, "/desk/.workbench"), ({"WORKBENCH_HOME": "mine"}, "/desk/mine"), ({"WORKBENCH_HOME": "/a/b"}, "/a/b")],
)
def test_a_home_is_located_from_where_the_process_runs(environment: dict[str, str], home: str) -> None:
    assert home_of(environment, Path("/desk")) == Path(home).resolve()
