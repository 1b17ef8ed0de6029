"""PostgreSQL is found where Debian puts it, and when something is missing it is said what is not tried."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.workbench.postgres import find_initdb

SCRIPT = Path(__file__).parents[1] / "install_system.sh"


def test_the_newest_version_is_located_outside_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert find_initdb(tmp_path) is None
    for version in ("9.6", "15", "13"):
        (tmp_path / version / "bin").mkdir(parents=True)
        (tmp_path / version / "bin" / "initdb").touch()
    assert find_initdb(tmp_path) == tmp_path / "15" / "bin" / "initdb"


def test_what_cannot_be_installed_is_reported_with_what_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = shutil.which("sh")
    assert shell is not None
    monkeypatch.setenv("PATH", str(tmp_path))
    done = subprocess.run([shell, SCRIPT], capture_output=True, text=True, check=True)
    assert "apt-get install chromium" in done.stdout
    assert "apt-get install redis-server" in done.stdout
    assert ("apt-get install postgresql" in done.stdout) == (find_initdb() is None)
    assert done.stderr == ""
