"""A gate of another package works everywhere, though nothing outside this folder knows it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.mixing.gate_type import gate_types

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]


def run_with_the_plugin(*tests: str) -> str:
    """The output of these tests in a process that has the toy gate installed; they must pass."""
    path = os.pathsep.join([str(FOLDER), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, f"{ended.stdout[-8000:]}\n{ended.stderr[-2000:]}"
    return ended.stdout


def test_without_its_package_the_gate_does_not_exist() -> None:
    assert "tempered" not in gate_types()


@pytest.mark.timeout(600)
def test_it_is_made_used_and_shown_from_the_command_line_to_the_studio() -> None:
    assert "6 passed" in run_with_the_plugin("tests/toy_gate/journey.py")


@pytest.mark.timeout(600)
def test_it_keeps_the_laws_of_every_gate() -> None:
    output = run_with_the_plugin("tests/engine/mixing/test_conformance.py", "-k", "tempered", "-rN", "--no-header")
    assert "passed" in output
