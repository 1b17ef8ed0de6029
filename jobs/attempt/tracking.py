"""Sends the points of a job's curves to the trackers that WORKBENCH_TRACKERS names, each in a thread of its own.

A tracker that is missing, fails or hangs is one sentence in the job's log; the job goes on without it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from queue import SimpleQueue

from engine.errors import Problem
from engine.plugins import install_line
from jobs.attempt.reporting import Point
from jobs.attempt.work import Work, append_to_log
from jobs.trackers.tracker import Run, known_trackers
from workbench.job_records import jobs as rows
from workbench.schema.job_states import STOPPED

END_SECONDS = 5.0  # for the trackers of a stopped job to write what is left: a cancelled job must be gone soon
DONE_SECONDS = 30.0  # of a job that is done
LONGEST_REASON = 300  # characters


class Tracking:
    """The trackers of one attempt. Adding points never waits for them."""

    def __init__(self, work: Work) -> None:
        self._work = work
        names = work.settings.tracker_names
        run = _tracked_run(work) if names else None
        self._threads = [_TrackerThread(name, run, work) for name in names if run]
        for thread in self._threads:
            thread.start()

    def add(self, points: Sequence[Point]) -> None:
        """Passes on points of one step; numbers that are not finite are left out, as in the registry."""
        metrics = {name: value for name, _, value in points if math.isfinite(value)}
        if metrics:
            for thread in self._threads:
                thread.items.put((points[0][1], metrics))

    def close(self) -> None:
        """Ends all runs with the state of the job's row; a tracker that does not end in time is left behind."""
        if not self._threads:
            return
        state = _state_of(self._work)
        for thread in self._threads:
            thread.items.put(state)
        until = time.monotonic() + (DONE_SECONDS if state == "done" else END_SECONDS)
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
            if thread.is_alive():
                thread.report("did not end in time; its last points may be missing.")


def _tracked_run(work: Work) -> Run:
    """The run of a job; without its title and its spec while the registry does not answer."""
    folder = work.settings.root / "trackers"
    with suppress(Problem), work.reading() as session:
        card = rows.get_job(session, work.job_id)
        return Run(work.job_id, card.title, card.spec, folder)
    return Run(work.job_id, work.job_id, {}, folder)


def _state_of(work: Work) -> str:
    """How the attempt ended; `queued` if another worker continues."""
    with suppress(Problem), work.reading() as session:
        state = rows.get_job(session, work.job_id).state
        return state if state in STOPPED else "queued"
    return "queued"


class _TrackerThread(threading.Thread):
    """Feeds one tracker; `items` are steps with their metrics, and last the state of the job."""

    def __init__(self, name: str, run: Run, work: Work) -> None:
        super().__init__(name=f"tracker {name}", daemon=True)
        self.items: SimpleQueue[tuple[int, dict[str, float]] | str] = SimpleQueue()
        self._tracker_name, self._tracked_run, self._settings, self._has_reported = name, run, work.settings, False

    def run(self) -> None:
        try:
            self._feed()
        except ModuleNotFoundError as error:
            self.report(f"needs {error.name}, which is not installed. {install_line('trackers')}")
        except (Exception, SystemExit) as error:
            reason = f"{type(error).__name__}: {error}".partition("\n")[0][:LONGEST_REASON]
            self.report(f"failed and gets no more points. {reason}")

    def _feed(self) -> None:
        trackers = known_trackers()
        if self._tracker_name not in trackers:
            self.report(f"is unknown. Choose of {', '.join(sorted(trackers))} in WORKBENCH_TRACKERS.")
            return
        tracker = trackers[self._tracker_name].make()
        tracker.begin(self._tracked_run)
        while not isinstance(item := self.items.get(), str):
            tracker.log(*item)
        tracker.end(item)

    def report(self, what: str) -> None:
        """Adds a sentence to the job's log, the first time only."""
        if not self._has_reported:
            self._has_reported = True
            append_to_log(self._settings, self._tracked_run.job_id, f"The tracker “{self._tracker_name}” {what}\n")
