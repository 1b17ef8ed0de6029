"""The seconds of a training by what is done."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from engine.events import Evaluated, Event, Progress, Saved, Saving, Step
from jobs.probe import measuring
from jobs.probe.measuring import Stopwatch
from workbench.kinds.kind import Probe


def step(number: int) -> Step:
    """An update of two seconds."""
    return Step(number, 4, 1.0, 1e-3, 100, 50.0)


@pytest.mark.parametrize(
    "timed",
    [
        [(2, step(1)), (9, Saving(1)), (3, Saved(1, "")), (2, step(2)), (0, Saving(2)), (5, Saved(2, ""))],
        [(2, step(1)), (0, Saving(1)), (3, step(2)), (2, Saved(1, "")), (0, Saving(2)), (5, Saved(2, ""))],
    ],
    ids=["waiting", "in the background"],
)
def test_a_checkpoint_counts_as_long_as_the_training_stands_still_for_it(
    timed: Sequence[tuple[float, Event]], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(measuring, "perf_counter", lambda: now)
    stopwatch = Stopwatch()
    for seconds, event in timed:
        now += seconds
        stopwatch.see(event)
    shown = stopwatch.full(Probe(short=None, num_steps=2, num_checkpoints=10))  # type: ignore[type-var]
    assert shown.steps == 4
    assert shown.checkpoints == pytest.approx(10 * (3 + 5) / 2)


@pytest.mark.parametrize(("num_steps", "num_measured", "has_interval"), [(1, 1, False), (3, 2, False), (4, 3, True)])
def test_an_update_is_timed_from_the_first_on_and_has_an_interval_from_three(
    num_steps: int, num_measured: int, has_interval: bool
) -> None:
    stopwatch = Stopwatch()
    for number in range(1, num_steps + 1):
        stopwatch.see(step(number))
    update = stopwatch.update
    assert (update.seconds, update.num_measured, update.low is not None) == (2.0, num_measured, has_interval)


def test_the_evaluation_before_the_first_update_stands_for_those_that_are_to_come() -> None:
    stopwatch = Stopwatch()
    stopwatch.see(Evaluated(0, {}))
    stopwatch.see(step(1))
    probe = Probe(short=None, num_steps=2, num_evaluations=3)  # type: ignore[type-var]
    assert stopwatch.full(probe).evaluations > 0


def test_a_part_of_a_preparation_stands_for_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(measuring, "perf_counter", lambda: now)
    stopwatch = Stopwatch()
    for seconds, share in [(3, 1.0), (2, 0.25)]:
        now += seconds
        stopwatch.see(Progress(1, 1, "experts", is_first=True, share=share))
    assert stopwatch.full(Probe(short=None)).start == 3 + 8  # type: ignore[type-var]
