"""A probe of a large model is slow: it goes on as long as it comes further, and says where it was when it does not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.events import Step
from jobs.probe import probe_run
from jobs.probe.measuring import Stopwatch
from jobs.probe.probe_run import End, run_probe
from workbench.answers.forecasts import Measured, MemoryParts
from workbench.kinds.kind import Probe

CAME = End(problem="it came to its end")


def measured_after(num_steps: int) -> Measured:
    """What a probe of updates of two seconds has measured after so many."""
    stopwatch = Stopwatch()
    for number in range(1, num_steps + 1):
        stopwatch.see(Step(number, 4, 1.0, 1e-3, 100, 50.0))
    memory = MemoryParts(process=1, weights=1, gradients=1, optimizer=1, rest=1)
    return Measured(
        num_trained=1,
        memory=memory,
        peak_bytes=5,
        artifact_bytes=1,
        checkpoint_bytes=1,
        time=stopwatch.full(Probe(short=None, num_steps=100)),  # type: ignore[type-var]
        update=stopwatch.update,
        not_measured=["checkpoints", "storing the result"],
        tokens_per_second=stopwatch.tokens_per_second,
        num_tokens=10_000,
        num_flops=1,
        first_batch=[],
    )


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a probe that is at these stages, one every 50 seconds, and then at its end; with two minutes of patience."""

    def run(stages: Sequence[str]) -> End:
        clock = iter(range(0, 100_000, 25))  # two looks at the clock for each at the probe
        left = iter(stages)

        class Lines(probe_run._Lines):
            def __init__(self, _: Any) -> None:
                self.stage = self._seen = "starting"

            def end(self) -> End | None:
                self.stage = next(left, "")
                return None if self.stage else CAME

        monkeypatch.setattr(probe_run, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda _: None))
        monkeypatch.setattr(probe_run, "_Lines", Lines)
        monkeypatch.setattr(probe_run, "folder_for_a_probe", lambda _: nullcontext(Path()))
        monkeypatch.setattr(probe_run, "_process", lambda *_: nullcontext(None))
        monkeypatch.setattr(probe_run, "_runs_out", lambda *_: "")
        probe: Iterator[str] = run_probe(*[None] * 3, 120.0)  # type: ignore[list-item]
        while True:
            try:
                next(probe)
            except StopIteration as end:
                ended: End = end.value
                return ended

    return run


def test_a_probe_that_comes_further_is_let_go_on(run: Any) -> None:
    assert run([f"step {number} of 4" for number in range(1, 9)]) == CAME


def test_a_probe_that_stands_still_is_ended_and_says_where(run: Any) -> None:
    end = run(["step 1 of 4"] * 100)
    assert "too long" in end.problem
    assert "“step 1 of 4”" in end.problem


def test_what_was_measured_before_the_end_is_the_answer(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    known = measured_after(2)
    monkeypatch.setattr(probe_run._Lines, "so_far", known)
    end = run(["step 2 of 4"] * 100)
    assert end.measured == known
    assert "“step 2 of 4”" in end.problem
    assert "1 update; not measured: checkpoints and storing the result" in end.problem


def test_not_even_one_that_comes_further_goes_on_for_ever(run: Any) -> None:
    assert "too long" in run([f"document {number}" for number in range(1000)]).problem
