"""Each benchmark runs with `--quick`, and `make bench` gives a table of goals and figures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from benchmarks import load
from benchmarks.harness import run
from benchmarks.harness.benchmark import FIGURES_FILE, NOT_RUN, QUICK, Options

ROOT = Path(__file__).parents[1]
TOY = """
from harness.benchmark import Figure, Options, report
options = Options("A toy.", {"rounds": (3, 1)}).parse_args()
report(options, [Figure("speed", [1.5] * options.rounds, at_least=2)])
"""


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of three benchmarks: one misses its goal, one fails, one cannot be run here."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "benchmarks")]))
    (tmp_path / "missing.py").write_text(TOY)
    (tmp_path / "failing.py").write_text("raise TypeError")
    (tmp_path / "absent.py").write_text("from harness.benchmark import not_run\nnot_run('needs a GPU')")
    monkeypatch.setattr(run, "SCRIPTS", {path.stem: path for path in sorted(tmp_path.glob("*.py"))})
    return tmp_path


# Those that start servers, several processes or a pretrained model: a minute or more each on a busy machine.
LONG = (
    *("forecast", "learning_rates", "load", "methods_compared", "mixtures_on_vllm", "pages", "real_model"),
    *("registry_page", "sharding", "shared_cores", "toggle_browser", "training_memory", "two_hosts"),
)


@pytest.mark.slow
def test_the_long_benchmarks_name_their_options() -> None:
    """So that what they import is there, though their quick form is not run as often as that of the others."""
    scripts = [str(run.SCRIPTS[name]) for name in LONG]
    code = f"""
import runpy, sys
for script in {scripts}:
    sys.argv = [script, "--help"]
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        assert not end.code, script
"""
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "benchmarks"), str(ROOT / "studies")])}
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | paths, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("--quick") >= len(LONG)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name in LONG else name for name in run.SCRIPTS]
)
def test_a_benchmark_runs_on_little_sizes_and_claims_nothing(name: str, tmp_path: Path) -> None:
    figures = tmp_path / "figures.jsonl"
    paths = {"PYTHONPATH": str(ROOT), FIGURES_FILE: str(figures)}
    command = [sys.executable, str(run.SCRIPTS[name]), "--quick"]
    done = subprocess.run(command, env=os.environ | paths, capture_output=True, text=True, check=False)
    if done.returncode == NOT_RUN:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    assert QUICK in done.stdout
    assert {json.loads(line)["benchmark"] for line in figures.read_text().splitlines()} == {name}


def test_the_table_has_figures_beside_goals_and_goes_on_after_a_failure(
    toys: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert toys.is_dir()
    monkeypatch.setattr(sys, "argv", ["run.py"])
    with pytest.raises(SystemExit, match="failing missing"):
        run.main()
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in capfd.readouterr().out.splitlines()]
    assert ["absent", "", "not run", "", ""] in lines
    assert ["failing", "", "failed: exit status 1", "", ""] in lines
    assert ["missing", "speed: at least 2", "1.5 (missed)", "times", "3"] in lines


def test_with_quick_sizes_a_missed_goal_is_no_failure(toys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert toys.is_dir()
    monkeypatch.setattr(sys, "argv", ["run.py", "--quick", "missing"])
    run.main()


def test_quick_replaces_the_sizes_that_are_not_given() -> None:
    parser = Options("", {"width": (512, 16), "seeds": ([0, 1], [0]), "apart": (False, True)})
    assert parser.parse_args([]) == Namespace(quick=False, width=512, seeds=[0, 1], apart=False)
    quick = parser.parse_args(["--quick", "--width", "64"])
    assert quick == Namespace(quick=True, width=64, seeds=[0], apart=True)


def test_memory_that_keeps_growing_misses_the_goal_of_load() -> None:
    steady = [600.0, 900.0, *[1000.0, 1010.0] * 10]
    growing = [1000.0 + 10 * number for number in range(40)]
    assert load.growth(steady).is_reached
    assert not load.growth(growing).is_reached
