"""workbench selfcheck: a table for people, JSON for machines, and an exit code that a script can trust."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.selfcheck import laws
from engine.selfcheck.law import LawVerdict
from ui.cli.app import main
from workbench.job_records import jobs
from workbench.registry.database import reading

HOLDS = LawVerdict("L1", "a law that holds", "bit-equal", True, 0.0, 0.5, 0.1)
FAILS = LawVerdict("L9", "a law that does not", "1e-5", False, 0.25, 0.5, 0.1, "The deviation must be at most 1e-05.")
CRASHED = LawVerdict("L7", "a law that broke", "bit-equal", False, None, None, 0.1, "RuntimeError: [red]stuck[/red]")


@pytest.fixture
def finds(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the check find these verdicts."""

    def find(*checked: LawVerdict) -> None:
        def run(_device: str) -> Iterator[LawVerdict]:
            yield from checked

        monkeypatch.setattr(laws, "run_laws", run)

    return find


def test_the_real_check_passes_here_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["selfcheck", "--json"]) == 0

    printed = capsys.readouterr()
    outcome = json.loads(printed.out)
    assert outcome["ok"]
    assert len(outcome["laws"]) == len(laws.LAWS)
    assert printed.err == ""


def test_laws_that_hold_are_a_table_and_exit_code_0(finds: Any, capsys: pytest.CaptureFixture[str]) -> None:
    finds(HOLDS)
    assert main(["selfcheck"]) == 0

    message = capsys.readouterr().out
    assert "a law that holds  bit-equal  0         ok" in message
    assert "All 1 laws hold on this machine." in message
    assert "torch" in message


def test_the_results_are_what_the_page_shows(home: Path, finds: Any) -> None:
    assert home
    finds(HOLDS, FAILS)
    assert main(["selfcheck"]) == 1

    with reading() as session:
        [kept] = jobs.list_jobs(session, kind="selfcheck")
    assert (kept.state, kept.result["failed"]) == ("done", ["L9"])


def test_a_law_that_fails_is_named_with_its_reason_and_exit_code_1(
    finds: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    finds(HOLDS, FAILS, CRASHED)
    assert main(["selfcheck"]) == 1

    message = capsys.readouterr().out
    assert message.count("FAILED") == 2
    assert "L7: RuntimeError: [red]stuck[/red]" in message
    assert "2 of 3 laws do not hold on this machine: L9, L7." in message


def test_a_device_that_is_not_there_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from workbench.settings import get_settings

    monkeypatch.setenv("WORKBENCH_DEVICE", "cuda:99")
    get_settings.cache_clear()
    assert main(["selfcheck"]) == 2
    assert "WORKBENCH_DEVICE" in capsys.readouterr().err
