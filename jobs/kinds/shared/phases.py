"""Progress and time left of a job with several phases: each has a share of as many seconds as it should take."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import replace
from time import monotonic
from typing import TypeVar

from engine.events import Event, OverallProgress, Progress

Made = TypeVar("Made")
MIN_SECONDS = 3.0  # with less measured, only the expected seconds count
MIN_SHARE = 0.05  # of a phase, before its own speed counts for the rest of it
UNSURE = 2.0  # an estimate from sizes may be wrong by so much either way


class PhaseClock:
    """Compares the seconds of phases with those expected of them, and tells from both how long the rest takes."""

    def __init__(self, expected: Mapping[str, float], clock: Callable[[], float] = monotonic) -> None:
        """`expected` seconds of each phase, in their order."""
        self._expected, self._clock = dict(expected), clock
        self._order = list(expected)
        self._phase = ""
        self._began = clock()  # of the phase
        self._took = self._should = 0.0  # seconds of all phases before it, and those expected of these
        self._done = 0.0  # the share of the phase
        self._is_estimated = False  # that share
        self._last: OverallProgress | None = None

    def see(self, progress: Progress) -> OverallProgress | None:
        """How far all phases are after this progress; what is of none of them leaves that as it was."""
        if progress.phase not in self._expected:
            return self._last
        now = self._clock()
        if progress.phase != self._phase:
            if self._phase:
                self._took += now - self._began
                self._should += self._expected[self._phase]
            self._phase, self._began, self._done = progress.phase, now, 0.0
        self._done = max(self._done, min(progress.done / progress.total, 1.0) if progress.total else 0.0)
        self._is_estimated = progress.is_estimated
        self._last = self._overall(now - self._began)
        return self._last

    def _overall(self, seconds: float) -> OverallProgress:
        here = self._expected[self._phase]
        place = self._order.index(self._phase)
        before = sum(self._expected[name] for name in self._order[:place])
        after = sum(self._expected[name] for name in self._order[place + 1 :])
        took, should = self._took + seconds, self._should + self._done * here
        pace = took / should if took >= MIN_SECONDS and should > 0 else 1.0
        measured, estimated = 0.0, ((1 - self._done) * here + after) * pace
        if self._done >= MIN_SHARE and seconds >= MIN_SECONDS and not self._is_estimated:
            measured, estimated = seconds * (1 - self._done) / self._done, after * pace
        share = (before + self._done * here) / (before + here + after)
        return OverallProgress(
            share, measured + estimated, measured + estimated / UNSURE, measured + estimated * UNSURE
        )


def follow_phases(events: Generator[Event, None, Made], expected: Mapping[str, float]) -> Generator[Event, None, Made]:
    """Yields the events, with how far all phases are on each progress; returns what they return."""
    clock = PhaseClock(expected)
    with closing(events):
        while True:
            try:
                event = next(events)
            except StopIteration as end:
                made: Made = end.value
                return made
            yield replace(event, overall=clock.see(event)) if isinstance(event, Progress) else event
