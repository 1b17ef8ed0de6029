"""What is installed is what stands in the house: a package left out works in a checkout and nowhere else."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_package_of_the_house_is_installed() -> None:
    told = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"]
    rooms = ("engine", "workbench", "jobs", "ui")
    found = {
        ".".join(one.parent.relative_to(ROOT).parts) for room in rooms for one in (ROOT / room).rglob("__init__.py")
    }
    assert found == {name for name in told if not name.startswith("workbench.migrations")}
