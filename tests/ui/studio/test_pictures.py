"""The pictures of the pages: every page has one, every picture is shown by a document, and none is too large."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from ui.pages.catalog import all_pages
from ui.present.pages import OVERVIEW

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs" / "images"
PICTURES = sorted(path.name for path in FOLDER.iterdir() if path.suffix in (".png", ".webp"))
MOST_BYTES, MOST_BYTES_OF_ALL, MOST_BYTES_OF_THE_TOUR = 250_000, 4_000_000, 3_000_000


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script that makes them."""
    for name in ("playwright", "PIL"):
        pytest.importorskip(name, reason="docs/images/make.py needs it")
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    yield import_module("make")
    for name in ("make", "tour", "studio", "demo_home"):
        sys.modules.pop(name, None)


def test_every_page_has_a_picture() -> None:
    names = {page.address if page is not OVERVIEW else "overview" for page in all_pages()}
    assert names <= {Path(name).stem for name in PICTURES}


def test_the_script_makes_all_pictures_and_no_other(make: Any) -> None:
    assert sorted([*(f"{name}.png" for name in make.picture_names()), "tour.webp"]) == PICTURES


def test_every_picture_stands_in_a_document() -> None:
    documents = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    used = {name for path in documents for name in re.findall(r"images/([\w.-]+)\)", path.read_text(encoding="utf-8"))}
    assert used == set(PICTURES)


def test_no_picture_is_large() -> None:
    sizes = {name: (FOLDER / name).stat().st_size for name in PICTURES}
    assert sizes.pop("tour.webp") <= MOST_BYTES_OF_THE_TOUR
    assert {name: size for name, size in sizes.items() if size > MOST_BYTES} == {}
    assert sum(sizes.values()) <= MOST_BYTES_OF_ALL
