"""What a tracker is: a tool that shows curves of many trainings, such as TensorBoard or MLflow.

A module of this package offers some as `TRACKER`, another package as an entry point:

    [project.entry-points."expert_workbench.trackers"]
    my-tracker = "my_tracker.tracker:TRACKER"

A tracker imports its library in `begin`, so that one that is not chosen costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from engine.plugins import find_plugins

GROUP = "expert_workbench.trackers"  # of entry points


@dataclass(frozen=True)
class Run:
    """The job that is tracked. A resumed job is the same run."""

    job_id: str
    name: str  # the job's title
    config: Mapping[str, Any]  # its spec
    folder: Path  # for trackers that write files; it need not exist yet


class Tracker(Protocol):
    """One run in one tool. All calls come from one thread; an error ends the tracking, never the job."""

    def begin(self, run: Run) -> None:
        """Starts the run, or continues it after a pause."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Adds the values measured after `step` updates, named and in units as in `workbench job metrics`."""

    def end(self, state: str) -> None:
        """Ends the run: done, failed, cancelled, paused or queued (it continues elsewhere)."""


@dataclass(frozen=True)
class TrackerType:
    """A tracker by its name in WORKBENCH_TRACKERS."""

    name: str
    make: Callable[[], Tracker]


@cache
def known_trackers() -> dict[str, TrackerType]:
    """Every tracker by its name. Raises BadPluginError."""
    return find_plugins("jobs.trackers", GROUP, "TRACKER", TrackerType, lambda tracker: tracker.name)
