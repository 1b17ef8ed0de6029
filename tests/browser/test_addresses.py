"""Every choice has an address: back, forward, a reload and another browser find it again."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]


def test_back_forward_reload_and_another_browser_keep_what_was_chosen(
    servers: Any, page: Page, chromium: Browser
) -> None:
    page.goto(f"{servers.studio}/specialization")
    choose(page, "dev", "specialization.split=dev")
    choose(page, "Oracle gap", "specialization.view=Oracle")
    page.get_by_test_id("stTopNavLink").filter(has_text="Experts").click()
    expect(page.get_by_text("2 experts. Open one")).to_be_visible()
    page.get_by_label("Search", exact=True).fill("code")
    page.get_by_label("Search", exact=True).press("Enter")
    expect(page.get_by_text("1 expert. Open one")).to_be_visible()
    page.wait_for_url("**experts.search=code*")  # the address follows at the end of a run

    page.go_back()
    expect(page.get_by_text("2 experts. Open one")).to_be_visible()
    page.go_back()
    expect(chosen(page, "dev")).to_be_checked()
    expect(chosen(page, "Oracle gap")).to_be_checked()
    page.go_back()
    expect(chosen(page, "Oracle gap")).not_to_be_checked()
    expect(chosen(page, "dev")).to_be_checked()
    # Step by step: the browser's history ends where Streamlit writes the address of a page that answers late.
    page.go_forward()
    expect(chosen(page, "Oracle gap")).to_be_checked()
    page.go_forward()
    expect(page.get_by_text("2 experts. Open one")).to_be_visible()
    page.go_forward()
    expect(page.get_by_text("1 expert. Open one")).to_be_visible()

    page.reload()
    expect(page.get_by_label("Search", exact=True)).to_have_value("code")
    other = chromium.new_context().new_page()
    other.goto(page.url)
    expect(other.get_by_text("1 expert. Open one")).to_be_visible()
    other.context.close()


def choose(page: Page, name: str, part: str) -> None:
    chosen(page, name).click()
    page.wait_for_url(lambda url: part in url)


def chosen(page: Page, name: str) -> Any:
    return page.get_by_role("radio", name=name)
