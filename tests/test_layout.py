"""The layout of the packages: folders stay small enough to read."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MOST = 20


def test_no_folder_holds_more_than_twenty_modules() -> None:
    counts = Counter(
        path.parent.relative_to(ROOT).as_posix()
        for package in ("engine", "workbench", "jobs", "ui", "studies/workbench_studies")
        for path in (ROOT / package).rglob("*.py")
        if path.name != "__init__.py"
    )

    assert counts["workbench/registry"] > 1  # the count sees the packages
    assert {folder: count for folder, count in counts.items() if count > MOST} == {}


def test_no_kept_file_is_larger_than_a_megabyte() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("This is no checkout of git.")
    sizes = {name: (ROOT / name).stat().st_size for name in listed.stdout.split("\0") if (ROOT / name).is_file()}
    assert {name: size for name, size in sizes.items() if size > 1_000_000} == {}
