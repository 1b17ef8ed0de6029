"""A first visit: from the overview to the certificate of an own expert in fewer than ten clicks, and a chat with it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Locator, Page, ViewportSize, expect

from tests.browser.test_accessibility import open_page

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]
DONE = 300_000  # milliseconds in which a job ends
SCREEN: ViewportSize = {"width": 1440, "height": 900}
WORDS = ("stir", "bake", "simmer", "chop", "salt", "pepper", "onion", "oven", "gently", "soft", "serve", "with", "rice")


def test_an_own_file_becomes_a_certified_expert_in_nine_clicks(own_servers: Any, page: Page, tmp_path: Path) -> None:
    clicks = 0

    def click(locator: Locator) -> None:
        nonlocal clicks
        clicks += 1
        locator.click()

    page.set_viewport_size(SCREEN)
    open_page(page, own_servers.studio)
    click(page.get_by_role("link", name="Data", exact=True).first)
    click(page.get_by_role("radio", name="Import text"))
    with page.expect_file_chooser() as dialog:
        click(page.get_by_test_id("stFileUploaderDropzone"))
    dialog.value.set_files(recipes(tmp_path))
    expect(page.get_by_label("Name", exact=True)).to_have_value("my_recipes")
    click(page.get_by_role("button", name="Import the text"))
    expect(page.get_by_text("See the domains").first).to_be_visible(timeout=DONE)
    click(page.get_by_role("link", name="Train", exact=True).first)
    click(page.get_by_role("button", name="Continue with my_recipes"))
    click(page.get_by_role("button", name="Continue: one more expert"))
    expect(page.get_by_role("combobox", name="Domain", exact=True)).to_have_value("my_recipes")
    shorten(page)
    click(page.get_by_role("button", name="Train the expert"))
    expect(page.get_by_text("See the expert")).to_be_visible(timeout=DONE)
    certificate = page.locator("[data-testid=stMain] img[src^='data:image/svg+xml;base64']")
    expect(certificate).to_be_in_viewport(ratio=0.5, timeout=DONE)
    assert clicks < 10
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as PNG").click()
    with Image.open(download.value.path()) as image:
        assert (image.format, image.size) == ("PNG", (2400, 1260))
    clicks = 0
    click(page.get_by_role("link", name="Chat with it").first)
    panes = page.frame_locator("iframe").first
    expect(panes.locator("#chips-a .chip").first).to_be_attached(timeout=DONE)  # before, no click is heard
    expect(panes.locator("#next-a .next")).to_be_visible(timeout=DONE)
    click(panes.get_by_role("button", name="Generate", exact=True))
    for side in ("a", "b"):  # the seed model and the mixture
        expect(panes.locator(f"#answer-{side} .tv-token").first).to_be_visible(timeout=DONE)
    assert clicks < 4


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
