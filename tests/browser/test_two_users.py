"""Two people with a browser of their own change one mixture: the second save is refused, and nothing is lost."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import QUICK
from tests.browser.test_accessibility import SETTLED, open_page
from workbench.registry.database import close_engines, reading
from workbench.registry.mixtures import get_mixture

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_second_save_is_refused_and_the_choice_stays(own_servers: Any, chromium: Browser) -> None:
    anna, ben = (mixture_in_a_browser(own_servers, chromium) for _ in range(2))
    toggle(anna, "law")
    toggle(ben, "code")
    anna.get_by_role("button", name="Save to the mixture").click()
    expect(anna.get_by_text("first is saved.")).to_be_visible()

    save = ben.get_by_role("button", name="Save to the mixture")
    save.click()  # the page was drawn before Anna saved
    expect(ben.get_by_text("saved elsewhere meanwhile")).to_be_visible()
    expect(save).to_be_disabled()
    expect(ben.get_by_role("switch", name="code")).not_to_be_checked()
    assert active_experts(own_servers) == ["first/code"], "what Anna saved stands"

    ben.get_by_role("button", name="Load what is saved").click()
    expect(ben.get_by_role("switch", name="code")).to_be_checked()
    expect(ben.get_by_role("switch", name="law")).not_to_be_checked()
    toggle(ben, "law")
    save.click()
    expect(ben.get_by_text("first is saved.")).to_be_visible()
    assert active_experts(own_servers) == ["first/code", "first/law"]


def mixture_in_a_browser(servers: Any, chromium: Browser) -> Page:
    page = chromium.new_context(viewport={"width": 1400, "height": 1000}).new_page()
    page.set_default_timeout(QUICK)
    open_page(page, f"{servers.studio}/mixtures?mixture=first")
    return page


def toggle(page: Page, expert: str) -> None:
    switch = page.get_by_role("switch", name=expert)
    switch.focus()
    page.keyboard.press("Space")
    expect(page.get_by_text(re.compile("^not saved: "))).to_be_visible()
    expect(page.locator(SETTLED)).to_be_visible()


def active_experts(servers: Any) -> list[str]:
    try:
        with reading(servers.settings) as session:
            return sorted(member.expert for member in get_mixture(session, "first").members if member.active)
    finally:
        close_engines()
