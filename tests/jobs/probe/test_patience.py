"""A probe of a large model is slow: it goes on as long as it comes further, and says where it was when it does not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.probe import forecast
from jobs.probe.forecast import End, run_probe

CAME = End(problem="it came to its end")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a probe that is at these stages, one every 50 seconds, and then at its end; with two minutes of patience."""

    def run(stages: Sequence[str]) -> End:
        clock = iter(range(0, 100_000, 25))  # two looks at the clock for each at the probe
        left = iter(stages)

        class Lines(forecast._Lines):
            def __init__(self, _: Any) -> None:
                self.stage = self._seen = "starting"

            def end(self) -> End | None:
                self.stage = next(left, "")
                return None if self.stage else CAME

        monkeypatch.setattr(forecast, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda _: None))
        monkeypatch.setattr(forecast, "_Lines", Lines)
        monkeypatch.setattr(forecast, "folder_for_a_probe", lambda _: nullcontext(Path()))
        monkeypatch.setattr(forecast, "_process", lambda *_: nullcontext(None))
        monkeypatch.setattr(forecast, "_runs_out", lambda *_: "")
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


def test_not_even_one_that_comes_further_goes_on_for_ever(run: Any) -> None:
    assert "too long" in run([f"document {number}" for number in range(1000)]).problem
