"""Processes that cannot start leave nothing behind."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from engine.training.launch import run_workers


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
