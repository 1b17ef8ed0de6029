"""What `make gpu` runs, tried on a CPU with a tiny model: a day with a GPU is too short for mistakes."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from benchmarks.gpu import measure, programs
from tests.journeys.conftest import write_domain


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
    monkeypatch.setattr(measure, "device_tests", lambda: {"passed": 1, "failed": 0})
    monkeypatch.setattr(measure, "STEPS", {"scoring": measure.scoring, "no such step": measure.scoring})
    monkeypatch.setattr(sys, "argv", ["measure.py", "--small", "--device", "cpu", "--out", str(tmp_path / "gpu.json")])
    with pytest.raises(SystemExit) as ended:
        measure.main()
    assert ended.value.code
    text = (tmp_path / "gpu.json").read_text()
    assert "expert_tokens_per_second" in text
    assert "invalid choice: 'no such step'" in text


def test_the_tests_for_a_device_are_counted() -> None:
    figures = programs.device_tests()
    assert (figures["failed"], figures["failed_tests"]) == (0, [])
    assert figures["passed"] + figures["skipped"] > 20


def test_without_text_no_model_is_replicated(tmp_path: Path) -> None:
    figures = programs.replication(None, "smoke", "cpu", tmp_path)
    assert "make gpu TEXT=FOLDER" in figures["left_out"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
@pytest.mark.slow
def test_a_replication_that_is_ended_at_the_limit_goes_on_when_it_is_called_again(tmp_path: Path) -> None:
    for place, names in (("train", ("court", "kitchen")), ("novel", ("sea",))):
        (tmp_path / place).mkdir()
        for name in names:
            write_domain(tmp_path / place, name)

    def jobs_after(seconds: float) -> Counter[str]:
        figures = programs.replication(tmp_path, "smoke", "cpu", tmp_path / "home", seconds)
        assert "error" not in figures
        return Counter(figures["jobs"])

    first, second = jobs_after(20), jobs_after(40)
    assert first.total() == second.total() > 20
    assert first["done"] <= second["done"]
    assert first["failed"] == second["failed"] == 0


def test_without_a_gpu_nothing_is_measured() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu.measure", "--device", "cuda:99"],
        cwd=programs.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "Nothing was measured. To try the steps without a GPU: --small --device cpu" in done.stderr
