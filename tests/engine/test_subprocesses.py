"""No process takes code from the folder that it happens to start in."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.device import python_command, python_environment

ROOT = Path(__file__).parents[2]
PAGES = ("engine", "workbench", "jobs", "ui", "studies/workbench_studies")
OWN_PYTHON = {
    "engine/device.py",
    "engine/training/launchers.py",  # tries the Python of another host, which imports nothing
    "ui/serving/up.py",  # puts its folder onto the PATH
    "jobs/kinds/shared/gguf.py",  # runs llama.cpp's script, which finds its modules beside itself
}


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    (tmp_path / "engine.py").write_text("raise RuntimeError('from the current folder')")
    return tmp_path


def test_a_module_of_the_current_folder_does_not_stand_in_for_ours(trap: Path) -> None:
    ended = subprocess.run(python_command("engine.device"), cwd=trap, env={**python_environment({})}, check=False)
    assert ended.returncode == 0


def test_what_such_a_process_starts_is_as_safe(trap: Path) -> None:
    child = python_command("engine.device")
    child.remove("-P")
    assert subprocess.run(child, cwd=trap, env=python_environment({}), check=False).returncode == 0


def test_the_paths_that_the_person_set_stay() -> None:
    paths = python_environment({"PYTHONPATH": "/theirs:"})["PYTHONPATH"].split(":")
    assert paths == [str(ROOT), "/theirs"]


@pytest.mark.parametrize("inherited", ["", ":", ":/theirs", "/theirs:", "/theirs::/others"])
def test_installed_as_well_no_empty_entry_stands_for_the_current_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, inherited: str
) -> None:
    monkeypatch.setattr("engine.device._ROOT", tmp_path)
    paths = python_environment({"PYTHONPATH": inherited})["PYTHONPATH"]
    assert paths == ":".join(filter(None, inherited.split(":")))  # an empty variable is none


def test_every_process_is_started_by_the_safe_command() -> None:
    files = [path for page in PAGES for path in (ROOT / page).rglob("*.py")]
    by_hand = {str(path.relative_to(ROOT)) for path in files if "executable" in _attributes(path)}
    assert by_hand == OWN_PYTHON
    lines = (ROOT / "Procfile").read_text(encoding="utf-8").splitlines()
    assert all(line.split(": ")[1].startswith("exec python -P -m ui.serving.supervise ") for line in lines)


def _attributes(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            yield node.attr
