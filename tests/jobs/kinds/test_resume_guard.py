"""What a job began with holds for all its attempts."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.errors import TrainingError
from engine.events import Note
from jobs.kinds.shared import resume_guard
from jobs.kinds.shared.resume_guard import note_versions, order_of_rows
from jobs.kinds.shared.tokens import DomainFiles, require_same


def domain(sha256: str) -> Any:
    return DomainFiles("id", "law", sha256, None, "")  # type: ignore[arg-type]


def test_a_later_attempt_reads_what_the_first_one_read(tmp_path: Path) -> None:
    work: Any = SimpleNamespace(folder=tmp_path)
    require_same(work, [domain("a")], {"seed model “s”": "1"})
    require_same(work, [domain("a")], {"seed model “s”": "1"})
    with pytest.raises(TrainingError, match="domain “law” has changed since this training started"):
        require_same(work, [domain("b")], {"seed model “s”": "1"})
    with pytest.raises(TrainingError, match="seed model “s” has changed"):
        require_same(work, [domain("a")], {"seed model “s”": "2"})


def test_a_later_attempt_with_another_torch_notes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work: Any = SimpleNamespace(folder=tmp_path)
    assert list(note_versions(work)) == []
    assert list(note_versions(work)) == []
    began = json.loads((tmp_path / "versions.json").read_text())
    assert {"torch", "transformers", "expert-workbench"} <= set(began)
    monkeypatch.setattr(resume_guard, "library_versions", lambda: {**began, "torch": "9.9"})
    note = (
        "The training goes on with other versions than it began with, so its bits may differ: "
        f"torch {began['torch']}, now 9.9."
    )
    assert list(note_versions(work)) == [Note(note)]


def test_a_training_keeps_the_order_of_rows_that_it_began_with(tmp_path: Path) -> None:
    of_an_earlier_version, new = (SimpleNamespace(folder=tmp_path / name) for name in ("old", "new"))
    (tmp_path / "old" / "step-00000002").mkdir(parents=True)
    (tmp_path / "new").mkdir()
    assert (order_of_rows(of_an_earlier_version), order_of_rows(new)) == ("ids", "spec")  # type: ignore[arg-type]
    require_same(new, [domain("a")])  # type: ignore[arg-type]
    (tmp_path / "new" / "step-00000002").mkdir()
    assert order_of_rows(new) == "spec"  # type: ignore[arg-type]


def test_a_training_that_an_earlier_version_had_started_continues_in_its_order(tmp_path: Path) -> None:
    work: Any = SimpleNamespace(folder=tmp_path)
    require_same(work, [domain("a")])
    assert order_of_rows(work) == "ids"
