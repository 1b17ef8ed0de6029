"""The keys / and Ctrl+K open the search from every page, and a hit opens the page that shows it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import RunningWorkbench
from tests.browser.test_accessibility import PHONE, open_page
from tests.browser.test_live_parts import studio  # noqa: F401  # a fixture

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]


def test_a_key_opens_the_search_and_a_hit_its_page(studio: RunningWorkbench, page: Page) -> None:  # noqa: F811
    open_page(page, f"{studio.studio}/jobs")
    page.keyboard.press("/")
    field = page.get_by_role("textbox", name="Search the registry")
    expect(field).to_be_focused()
    page.keyboard.type("a/b laws again")  # in a field, / is a letter
    expect(field).to_have_value("a/b laws again")
    field.fill("laws again")
    field.press("Enter")
    hit = page.get_by_role("link", name="laws again", exact=True)
    expect(hit).to_be_visible()
    expect(page).to_have_url(re.compile(r"/search\?q=laws"))
    hit.click()
    expect(page).to_have_url(re.compile(r"/experts\?experts\.chosen=laws"))
    page.keyboard.press("Control+k")
    expect(field).to_be_focused()
    page.set_viewport_size(PHONE)
    open_page(page, f"{studio.studio}/search?q=first")
    expect(page.get_by_role("heading", name="Mixtures (1)")).to_be_visible()
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= PHONE["width"]
