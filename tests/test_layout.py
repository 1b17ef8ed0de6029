"""The layout of the packages: a folder can be read at a glance, and a file is worth opening."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("engine", "workbench", "jobs", "ui", "studies/workbench_studies")
MOST_IN_A_FOLDER = 30
FEW_LINES, MOST_SMALL = 40, 0.15  # a module of so few lines belongs to the one that uses it, if only one does


def modules() -> list[Path]:
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    return [path for path in files if path.name != "__init__.py"]


def test_no_folder_holds_more_modules_than_a_screen_lists() -> None:
    counts = Counter(path.parent.relative_to(ROOT).as_posix() for path in modules())
    assert counts["workbench/registry"] > 1  # the count sees the packages
    assert {folder: count for folder, count in counts.items() if count > MOST_IN_A_FOLDER} == {}


def test_few_modules_are_so_small_that_reading_them_is_mostly_opening_files() -> None:
    small = [path for path in modules() if len(path.read_text(encoding="utf-8").splitlines()) < FEW_LINES]
    share = len(small) / len(modules())
    assert share < MOST_SMALL, "\n".join(str(path.relative_to(ROOT)) for path in small)


def test_no_kept_file_is_larger_than_a_megabyte() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("This is no checkout of git.")
    sizes = {name: (ROOT / name).stat().st_size for name in listed.stdout.split("\0") if (ROOT / name).is_file()}
    assert {name: size for name, size in sizes.items() if size > 1_000_000} == {}
