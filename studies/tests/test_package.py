"""The distribution holds every file of the studies, data as well, and offers them by entry points."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_its_wheel_holds_every_file_and_needs_the_workbench(tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "tests")
    shutil.copytree(ROOT, tmp_path / "tree", ignore=ignored)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    command = [*pip, "--wheel-dir", str(tmp_path), str(tmp_path / "tree")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        held = {name for name in file.namelist() if ".dist-info/" not in name}
        texts = {Path(name).name: file.read(name).decode() for name in file.namelist() if ".dist-info/" in name}
    files = (path for path in (ROOT / "workbench_studies").rglob("*") if path.is_file() and path.suffix != ".pyc")
    assert held == {path.relative_to(ROOT).as_posix() for path in files}
    assert "Requires-Dist: expert-workbench[jobs]" in texts["METADATA"]
    assert "replicate-demix = workbench_studies.kinds.replicate_demix:KIND" in texts["entry_points.txt"]
