"""Phases share the progress of their job by the seconds expected of them, and its speed corrects the time left."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from engine.events import Event, Note, OverallProgress, Progress
from jobs.kinds.shared.phases import PhaseClock, follow_phases

EXPECTED = {"read": 10.0, "fit": 30.0, "draw": 60.0}


def see(clock_at: list[float], clock: PhaseClock, at: float, phase: str, done: float) -> OverallProgress:
    clock_at[0] = at
    overall = clock.see(Progress(done, 10, "documents", phase=phase))
    assert overall is not None
    return overall


def test_progress_never_falls_from_one_phase_to_the_next_and_every_phase_has_an_estimate() -> None:
    at = [0.0]
    clock = PhaseClock(EXPECTED, lambda: at[0])
    seen = [see(at, clock, *one) for one in ((0, "read", 0), (10, "read", 10), (10, "fit", 0), (40, "draw", 5))]
    assert [one.share for one in seen] == [0, 0.1, 0.1, pytest.approx(0.7)]
    assert [one.seconds_left for one in seen[:3]] == [100, 90, 90]
    assert all(one.soonest <= one.seconds_left <= one.latest for one in seen)


def test_a_slow_machine_corrects_what_was_expected_of_the_phases_to_come() -> None:
    at = [0.0]
    clock = PhaseClock(EXPECTED, lambda: at[0])
    see(at, clock, 0, "read", 0)
    assert see(at, clock, 20, "read", 10).seconds_left == 180


def test_a_phase_that_is_measured_has_the_rest_of_it_by_its_own_speed() -> None:
    at = [0.0]
    clock = PhaseClock({"draw": 60.0}, lambda: at[0])
    see(at, clock, 0, "draw", 0)
    assert see(at, clock, 90, "draw", 5) == OverallProgress(0.5, 90, 90, 90)


def test_a_phase_that_is_only_estimated_stays_as_unsure_as_its_size_says() -> None:
    at = [0.0]
    clock = PhaseClock({"draw": 60.0}, lambda: at[0])
    clock.see(Progress(0, 10, "percent", phase="draw", is_estimated=True))
    at[0] = 60
    overall = clock.see(Progress(5, 10, "percent", phase="draw", is_estimated=True))
    assert overall == OverallProgress(0.5, 60, 30, 120)


def test_a_phase_that_another_job_did_counts_as_done_and_other_events_pass() -> None:
    def work() -> Generator[Event, None, str]:
        yield Note("a choice")
        yield Progress(1, 2, "documents", phase="fit")
        yield Progress(1, 2, "files", "uploading")
        return "made"

    events, made = [], follow_phases(work(), EXPECTED)
    with pytest.raises(StopIteration) as end:
        while True:
            events.append(next(made))
    assert end.value.value == "made"
    assert events[0] == Note("a choice")
    assert [one.overall.share for one in events[1:] if isinstance(one, Progress) and one.overall] == [0.25, 0.25]
