"""The pace of this machine, measured and not assumed."""

from __future__ import annotations

import pytest

from engine.config import ModelConfig
from workbench_studies.papers import forecast as pace


def test_the_pace_counts_tokens_over_the_time_that_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "_SECONDS", 0.0)
    monkeypatch.setattr(pace, "_seconds", lambda work, _clock: work() or 2.0)
    monkeypatch.setattr(pace, "_start_seconds", lambda: 0.5)
    shape = ModelConfig(num_layers=1, width=32, num_heads=2, ffn_width=64, max_positions=64)
    result = pace.measure_pace(shape, 320, 32, "cpu")
    assert (result.trained, result.scored, result.device) == (1024.0, 1024.0, "cpu")
    assert result.num_parameters > 320 * 32


def test_the_time_is_the_mean_of_the_calls_without_the_first() -> None:
    now, calls = [0.0], list[float]()

    def work() -> None:
        now[0] += 100.0 if not calls else 0.3
        calls.append(now[0])

    assert pace._seconds(work, lambda: now[0]) == pytest.approx(0.3)
    assert len(calls) == 1 + 4
