"""The self-check passes on the engine as it is, measures what it says, and never breaks off."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from dataclasses import asdict
from typing import Any

import pytest
import torch

from engine.device import versions
from engine.errors import ModelError
from engine.selfcheck import decoding_laws, laws, persistence_laws, test_bed
from engine.selfcheck.law import Law, LawFinding, LawVerdict, gap, judge, relative_gap, report, worst
from engine.selfcheck.laws import LAWS, run_laws
from engine.selfcheck.test_bed import TestBed, every_gate

Patch = pytest.MonkeyPatch
NUMBERS = [f"L{number}" for number in range(1, 22)]


@pytest.fixture(scope="module")
def checked() -> list[LawVerdict]:
    began = time.process_time()  # of the processor: others may be at work on this machine
    result = list(run_laws("cpu"))
    assert time.process_time() - began < 60
    return result


def test_every_law_holds_here(checked: list[LawVerdict]) -> None:
    assert [one.law for one in checked] == NUMBERS
    assert [one.message for one in checked] == [""] * len(NUMBERS)
    assert all(one.passed for one in checked)


def test_every_law_measures_and_would_see_it_broken(checked: list[LawVerdict]) -> None:
    for one, law in zip(checked, LAWS, strict=True):
        assert one.measured is not None
        assert one.measured <= law.limit
        assert one.control is not None
        assert one.control > 1e-3


def test_an_error_inside_a_law_is_a_failed_law_with_its_message(monkeypatch: Patch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("the gate is stuck\nand more")

    monkeypatch.setattr(test_bed, "build_gate", broken)
    result = {one.law: one for one in run_laws("cpu", [law for law in LAWS if law.number in ("L1", "L5", "L8", "L13")])}
    assert result["L8"].passed
    for number in ("L1", "L5", "L13"):
        assert not result[number].passed
        assert (result[number].measured, result[number].message) == (None, "RuntimeError: the gate is stuck")


def test_a_generation_that_says_nothing_proves_nothing(monkeypatch: Patch) -> None:
    monkeypatch.setattr(decoding_laws, "generate", lambda *_: iter([]))
    (result,) = run_laws("cpu", [law for law in LAWS if law.number == "L13"])
    assert not result.passed
    assert (result.control, "proves nothing" in result.message) == (0, True)


@pytest.mark.parametrize(
    "findings", [[], [LawFinding(math.nan, 1.0)], [LawFinding(0.0, 1.0), LawFinding(math.nan, 1.0)]]
)
def test_what_is_no_number_or_was_not_measured_never_passes(findings: list[LawFinding]) -> None:
    law = Law("L0", "", "exact", 0, lambda _: iter(findings))
    result = judge(law, TestBed(torch.device("cpu"), laws.Path()))
    assert not result.passed
    assert result.measured is None


def test_differences_are_seen_whatever_they_are() -> None:
    one = torch.tensor([1.0, -math.inf])
    assert gap(one, one) == 0
    assert gap(one, torch.tensor([1.0, 0.0])) == math.inf
    assert gap(one, one[:1]) == math.inf
    assert math.isnan(gap(one, torch.tensor([math.nan, -math.inf])))
    assert relative_gap(torch.tensor([-200.0]), torch.tensor([-100.0])) == 1
    assert math.isnan(worst([1.0, math.nan]))
    assert worst([1.0, 3.0]) == 3.0


def test_a_missing_device_is_reported_and_fails_no_law() -> None:
    with pytest.raises(ModelError, match="is not available"):
        next(run_laws("cuda:99"))


def test_a_new_kind_of_gate_is_checked_without_asking() -> None:
    result = list(every_gate())
    assert len(result) == len(set(result))
    assert {(one.kind, getattr(one, "evidence", None), one.top_k) for one in result} >= {
        ("posterior", "last_token", 2),
        ("updating", "prefix", None),
        ("fixed", None, 2),
    }


def test_a_check_that_is_stopped_leaves_no_file(monkeypatch: Patch, tmp_path: Any) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    running = run_laws("cpu", LAWS[6:8])
    next(running)
    assert list(tmp_path.iterdir())
    running.close()
    assert not list(tmp_path.iterdir())


def test_the_report_is_json_and_says_where_and_with_what(checked: list[LawVerdict]) -> None:
    shown = asdict(report(checked, "cpu"))
    assert json.loads(json.dumps(shown, allow_nan=False)) == shown
    assert shown["ok"]
    assert shown["device"].startswith("cpu")
    assert set(versions()) >= {"python", "torch", "transformers"}
    assert [law["law"] for law in shown["laws"]] == NUMBERS


def test_no_verdict_at_all_is_not_ok() -> None:
    assert not report([], "cpu").ok


def test_versions_can_be_reported_without_importing_torch() -> None:
    code = "import sys; from engine.device import versions; versions(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_training_is_checked_over_more_than_one_checkpoint() -> None:
    assert 0 < persistence_laws.CUT < persistence_laws.TRAINING.checkpoint_every < persistence_laws.TRAINING.num_steps
