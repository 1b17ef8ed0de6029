"""A first visit: from the overview to an expert of an own file, in fewer than ten clicks."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.test_accessibility import open_page

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]
DONE = 300_000  # milliseconds in which a job ends
WORDS = ("stir", "bake", "simmer", "chop", "salt", "pepper", "onion", "oven", "gently", "soft", "serve", "with", "rice")


def test_an_own_file_becomes_an_expert_in_fewer_than_ten_clicks(own_servers: Any, page: Page, tmp_path: Path) -> None:
    clicks = 0

    def click(locator: Locator) -> None:
        nonlocal clicks
        clicks += 1
        locator.click()

    open_page(page, own_servers.studio)
    click(page.get_by_role("link", name="Data", exact=True).first)
    click(page.get_by_role("radio", name="Import text"))
    with page.expect_file_chooser() as dialog:
        click(page.get_by_test_id("stFileUploaderDropzone"))
    dialog.value.set_files(recipes(tmp_path))
    expect(page.get_by_label("Name", exact=True)).to_have_value("my_recipes")
    click(page.get_by_role("button", name="Import the text"))
    expect(page.get_by_text("See the domains")).to_be_visible(timeout=DONE)
    click(page.get_by_role("link", name="Train", exact=True).first)
    click(page.get_by_role("button", name="Continue with my_recipes"))
    click(page.get_by_role("button", name="Continue: one more expert"))
    expect(page.get_by_role("combobox", name="Domain", exact=True)).to_have_value("my_recipes")
    shorten(page)
    click(page.get_by_role("button", name="Train the expert"))
    expect(page.get_by_text("See the expert")).to_be_visible(timeout=DONE)
    assert clicks < 10


def shorten(page: Page) -> None:
    """Fewer steps than a visitor would take: only the test's time depends on them."""
    page.get_by_text("Training details").click()
    for label, value in (("Steps", "20"), ("Block size", "32")):
        page.get_by_label(label, exact=True).fill(value)
        page.get_by_label(label, exact=True).press("Tab")


def recipes(folder: Path) -> Path:
    chance = random.Random(1)
    path = folder / "my_recipes.txt"
    path.write_text("\n\n".join(" ".join(chance.choices(WORDS, k=60)) for _ in range(200)), encoding="utf-8")
    return path
