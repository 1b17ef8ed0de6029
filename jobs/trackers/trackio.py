"""Trackio: a local file that `trackio show` draws, or a Space as its own variables say."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import Any

from jobs.trackers.tracker import Run, TrackerType

PROJECT = "expert-workbench"


class Trackio:
    """A run named by the job's title and id, so that a resumed job continues it."""

    def begin(self, run: Run) -> None:
        import trackio

        with redirect_stdout(sys.stderr):  # its greeting; a command's stdout may be JSON
            self._run: Any = trackio.init(
                project=os.environ.get("TRACKIO_PROJECT", PROJECT),
                name=f"{run.name} {run.job_id[:8]}",
                config=dict(run.config),
                resume="allow",
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def end(self, state: str) -> None:
        with redirect_stdout(sys.stderr):
            self._run.log({"state": state})
            self._run.finish()


TRACKER = TrackerType("trackio", Trackio)
