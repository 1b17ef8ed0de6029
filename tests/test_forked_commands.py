"""A forked command does not depend on what the test process has run before."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.forked_commands import run_forked


@pytest.mark.timeout(300)
def test_a_forked_command_runs_beside_a_main_module_that_cannot_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = ModuleType("__main__")
    page.__file__ = str(tmp_path / "page.py")
    (tmp_path / "page.py").write_text("raise SystemExit('the page was run again')", encoding="utf-8")
    monkeypatch.setitem(sys.modules, "__main__", page)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WORKBENCH_")}
    status, output = run_forked("workbench --version", tmp_path, clean, timeout=240)
    assert status == 0, output
    assert output.strip()
    assert sys.modules["__main__"] is page
