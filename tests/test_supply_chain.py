"""`make audit` does not call unaudited what it could not look up safe, and its programs are pinned."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

CI = Path(__file__).parents[1] / ".ci"
SAFE = {"name": "a", "version": "1", "vulns": []}
BAD = {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"]}]}
SKIPPED = {"name": "c", "skip_reason": "Dependency not found on PyPI"}


@pytest.fixture
def audit() -> ModuleType:
    spec = importlib.util.spec_from_file_location("audit", CI / "audit.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_known_hole_fails_the_audit(audit: ModuleType) -> None:
    words, code = audit.conclude({"dependencies": [SAFE, BAD]})
    assert code == 1
    assert "b 2: PYSEC-1, mended in 3" in words


def test_what_no_lookup_covers_is_named(audit: ModuleType) -> None:
    words, code = audit.conclude({"dependencies": [SAFE, SKIPPED]})
    assert code == 0
    assert "1 of 2 versions were looked up: 0 known holes." in words
    assert "NOT AUDITED: c." in words


@pytest.mark.parametrize("answer", [None, {"dependencies": []}, {"dependencies": [SKIPPED, SKIPPED]}])
def test_without_the_network_nothing_is_called_safe(audit: ModuleType, answer: object) -> None:
    words, _ = audit.conclude(answer, "no route" if answer is None else "")
    assert words.startswith("NOT AUDITED: no version was looked up")
    assert "0 known holes" not in words


def test_its_programs_are_pinned() -> None:
    lines = (CI / "supply_chain.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert pins
    assert all(re.fullmatch(r"[\w-]+==[\d.]+", pin) for pin in pins)
