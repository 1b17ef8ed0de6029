"""Processes that cannot start leave nothing behind."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from engine.errors import TrainingError
from engine.training.launch import run_workers
from engine.training.launchers import Node


@dataclass(frozen=True)
class NoTask:
    folder: Path
    device: str = "cpu"

    def write(self, path: Path) -> None:
        path.touch()


def test_no_pipe_stays_open_where_torchrun_cannot_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError("too many processes")

    monkeypatch.setattr(subprocess, "Popen", refused)
    files_before = psutil.Process().num_fds()

    for _ in range(3):
        with pytest.raises(OSError, match="too many"):
            list(run_workers(NoTask(tmp_path), "a.worker", 2))

    assert psutil.Process().num_fds() == files_before


FAILING = """
import sys
from pathlib import Path
from engine.errors import TrainingError
from engine.training.ipc import Launch, ParentConnection, report_error

parent = ParentConnection(Launch.read(Path(sys.argv[1])))
parent.introduce("rank", 1)
report_error(Path(sys.argv[1], "a disk of its own"), 1, TrainingError("It has 2 GPUs.", "Choose 2."), parent)
sys.exit(1)
"""


@dataclass(frozen=True)
class Elsewhere:
    """A machine of which no file is seen."""

    address: str = "127.0.0.1"
    private_variables: tuple[str, ...] = ()

    def nodes(self, num_processes: int) -> list[Node]:
        return [Node("elsewhere", num_processes)]

    def commands(self, nodes: Sequence[Node], folder: Path) -> list[list[str]]:
        return [[sys.executable, "-P", "-c", FAILING, str(folder)] for _ in nodes]


def test_the_error_of_another_machine_needs_no_file_that_is_seen_here(tmp_path: Path) -> None:
    with pytest.raises(TrainingError) as raised:
        list(run_workers(NoTask(tmp_path), "a.worker", 2, launcher=Elsewhere()))
    assert type(raised.value) is TrainingError
    assert (raised.value.problem, raised.value.next_step) == ("It has 2 GPUs.", "Choose 2.")
