"""A gate of another package works everywhere, though nothing outside this folder knows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.mixing.gate_type import gate_types
from tests.toy_packages import run_tests_with

FOLDER = Path(__file__).parent


def test_without_its_package_the_gate_does_not_exist() -> None:
    assert "tempered" not in gate_types()


@pytest.mark.timeout(600)
def test_it_is_made_used_and_shown_from_the_command_line_to_the_studio() -> None:
    assert "6 passed" in run_tests_with(FOLDER, "tests/toy_gate/journey.py")


@pytest.mark.timeout(600)
def test_it_keeps_the_laws_of_every_gate() -> None:
    output = run_tests_with(FOLDER, "tests/engine/mixing/test_conformance.py", "-k", "tempered", "-rN", "--no-header")
    assert "passed" in output
