"""A number out of its range, as a person writes it: Enter, Tab, and a click straight on the button."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

pytest.importorskip("workbench_studies")  # the page that has the field
pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]


def test_what_is_written_is_what_is_judged_and_the_button_sends_nothing_else(servers: Any, page: Page) -> None:
    page.goto(f"{servers.studio}/replications")
    seeds = page.get_by_label("Seeds", exact=True)
    button = page.get_by_role("button", name="Reproduce")
    command = page.get_by_test_id("stCode").first
    expect(command).to_contain_text("replicate")
    for how, number in (("Enter", "500"), ("Tab", "0")):
        seeds.fill(number)
        seeds.press(how)
        expect(page.get_by_text(f"Seeds must be a whole number from 1 to 20, not {number}.")).to_be_visible()
        expect(button).to_be_disabled()
    expect(seeds).to_have_value("0")
    seeds.fill("99999999999999999999")
    seeds.press("Enter")
    expect(page.get_by_text("not 100,000,000,000,000,000,000.")).to_be_visible()
    seeds.fill("3")
    seeds.press("Enter")
    expect(page.get_by_text("Seeds must be")).to_have_count(0)
    expect(button).to_be_enabled()

    seeds.fill("5000")
    button.click()
    expect(page.get_by_text("Seeds must be a whole number from 1 to 20, not 5,000.")).to_be_visible()
    expect(button).to_be_disabled()
    expect(page.get_by_text("Next step")).to_have_count(0)  # the click has submitted nothing that could be refused


def test_the_buttons_beside_a_number_stop_at_its_range(servers: Any, page: Page) -> None:
    page.goto(f"{servers.studio}/replications")
    seeds = page.get_by_label("Seeds", exact=True)
    expect(seeds).to_have_value("5")
    field = page.get_by_test_id("stNumberInput").filter(has=seeds)
    less, more = field.get_by_test_id("stNumberInputStepDown"), field.get_by_test_id("stNumberInputStepUp")
    less.click()
    expect(seeds).to_have_value("4")
    seeds.fill("1")
    seeds.press("Enter")
    expect(less).to_have_css("pointer-events", "none")
    expect(seeds).to_be_focused()  # the field is not drawn anew
    more.click()
    expect(seeds).to_have_value("2")
    expect(less).to_have_css("pointer-events", "auto")
    seeds.fill("20")
    seeds.press("Enter")
    expect(more).to_have_css("pointer-events", "none")
