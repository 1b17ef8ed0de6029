"""The layout of the packages: folders stay small enough to read."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST = 20


def test_no_folder_holds_more_than_twenty_modules() -> None:
    counts = Counter(
        path.parent.relative_to(ROOT).as_posix()
        for package in ("engine", "workbench", "jobs", "ui")
        for path in (ROOT / package).rglob("*.py")
        if path.name != "__init__.py"
    )

    assert counts["workbench/registry"] > 1  # the count sees the packages
    assert {folder: count for folder, count in counts.items() if count > MOST} == {}
