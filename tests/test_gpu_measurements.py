"""What `make gpu` runs, tried on a CPU with a tiny model: a day with a GPU is too short for mistakes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.gpu import measure


@pytest.mark.slow  # torch.compile takes a minute
@pytest.mark.filterwarnings("ignore")  # and warns
@pytest.mark.parametrize("step", sorted(set(measure.STEPS) - {"laws"}))
def test_each_step_gives_figures(step: str) -> None:
    figures = measure.STEPS[step](measure.SIZES["small"], torch.device("cpu"))
    assert figures
    positive = {name: value for name, value in figures.items() if name != "largest_difference_of_a_loss"}
    assert all(value is None or value > 0 for value in positive.values())


@pytest.mark.slow
def test_a_step_that_fails_says_why_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "STEPS", {"scoring": measure.scoring, "no such step": measure.scoring})
    monkeypatch.setattr(sys, "argv", ["measure.py", "--small", "--device", "cpu", "--out", str(tmp_path / "gpu.json")])
    with pytest.raises(SystemExit) as ended:
        measure.main()
    assert ended.value.code
    text = (tmp_path / "gpu.json").read_text()
    assert "expert_tokens_per_second" in text
    assert "invalid choice: 'no such step'" in text


def test_without_a_gpu_nothing_is_measured() -> None:
    done = subprocess.run(
        [sys.executable, measure.__file__, "--device", "cuda:99"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "Nothing was measured. To try the steps without a GPU: --small --device cpu" in done.stderr
