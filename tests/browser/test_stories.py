"""The pages Specialization and Posteriors in a Chromium: a cell leads to its passages, a text to its tokens."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.fields import choose_option
from tests.browser.test_accessibility import FITS, PHONE, SETTLED, TABLET, WIDE

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
SLOW = 120_000  # milliseconds, for an answer of a server that has just been started
COUNT_ENTRIES = """() => {
  const push = history.pushState;
  window.entries = 0;
  history.pushState = (...entry) => { window.entries += 1; push.apply(history, entry); };
}"""
HEIGHT = "document.querySelector('[data-testid=stMainBlockContainer]').scrollHeight"


def test_a_cell_leads_to_its_passages_and_a_link_finds_them_again(servers: Any, page: Page, chromium: Browser) -> None:
    page.set_viewport_size(WIDE)
    page.goto(f"{servers.studio}/specialization")
    expect(page.locator(".tv-token").first).to_be_attached(timeout=SLOW)
    usual = page.get_by_role("heading", name="2 ·").inner_text()
    assert page.evaluate(HEIGHT) <= 1.6 * WIDE["height"]

    page.get_by_role("button", name="Next cell").click()
    expect(page.get_by_role("heading", name="2 ·")).not_to_have_text(usual)
    expect(page.locator(".tv-token").first).to_be_attached(timeout=SLOW)
    chosen = page.get_by_role("heading", name="2 ·").inner_text()
    worst = page.get_by_text("From document").inner_text()
    page.get_by_role("radio", name="Best", exact=True).click()
    expect(page.get_by_role("heading", name="3 · The passage where it wins most")).to_be_visible(timeout=SLOW)
    expect(page.get_by_text("From document")).not_to_have_text(worst, timeout=SLOW)
    page.wait_for_selector(SETTLED)
    words = page.locator(".tv-text").inner_text()

    page.reload()
    expect(page.get_by_role("heading", name="2 ·")).to_have_text(chosen, timeout=SLOW)
    expect(page.get_by_role("heading", name="3 · The passage where it wins most")).to_be_visible(timeout=SLOW)
    expect(page.locator(".tv-text")).to_have_text(words, use_inner_text=True, timeout=SLOW)
    field = page.get_by_test_id("stSelectbox").filter(has_text="Expert").last
    expect(field.locator("input")).to_have_value(chosen.removeprefix("2 · ").split(" reading ")[0])

    page.evaluate(COUNT_ENTRIES)
    page.get_by_role("button", name="first/code on law").click()
    expect(page.get_by_role("heading", name="2 ·")).to_have_text("2 · first/code reading law")
    page.wait_for_selector(SETTLED)
    assert page.evaluate("window.entries") == 1  # of the browser's history, though expert and domain have changed
    page.go_back()
    expect(page.get_by_role("heading", name="2 ·")).to_have_text(chosen, timeout=SLOW)

    for size in (TABLET, PHONE):
        page.set_viewport_size(size)
        page.wait_for_selector(SETTLED)
        assert page.evaluate(FITS), size


def test_a_click_on_a_cell_of_the_posteriors_leads_to_a_passage_of_its_domain(servers: Any, page: Page) -> None:
    page.set_viewport_size(WIDE)
    page.goto(f"{servers.studio}/posteriors?posterior.view=All+domains&posteriors.split=test")
    passage = page.get_by_role("heading", name="A passage of")
    expect(passage).to_have_text("A passage of code", timeout=SLOW)
    expect(page.locator(".tv-token").first).to_be_attached(timeout=SLOW)
    assert page.get_by_test_id("stAlertContentError").count() == 0

    for domain in ("law", "code"):
        page.get_by_role("button", name=f"first/{domain} on {domain}").click()
        expect(passage).to_have_text(f"A passage of {domain}")
    expect(page.locator(".tv-token").first).to_be_attached(timeout=SLOW)

    choose_option(page.get_by_test_id("stSelectbox").filter(has_text="Domain of the text").locator("input"), "law")
    expect(passage).to_have_text("A passage of law")
    page.wait_for_selector(SETTLED)
    page.get_by_role("button", name="first/code on code").click()  # the cell that was clicked last
    expect(passage).to_have_text("A passage of code")


def test_a_text_with_markup_is_read_token_by_token_and_a_reload_reads_it_again(servers: Any, page: Page) -> None:
    text = "def f(x):\n    return <img src=x onerror=alert(1)>\nThe tenant shall pay the rent."
    page.set_viewport_size(WIDE)
    page.goto(f"{servers.studio}/posteriors")
    page.get_by_role("textbox", name="Text", exact=True).fill(text, timeout=SLOW)
    page.get_by_role("button", name="Show the posterior").click()
    expect(page.locator(".tv-token").first).to_be_attached(timeout=SLOW)
    plain = "(one) => [...one.querySelectorAll('.tv-token')].map((token) => token.textContent).join('')"
    assert page.locator(".tv-text").evaluate(plain) == text
    assert page.locator(".token-view img").count() == 0
    assert page.evaluate(HEIGHT) <= 1.6 * WIDE["height"]

    page.locator(".tv-text").focus()
    page.keyboard.press("Home")
    first = page.locator(".token-view table").inner_text()
    page.keyboard.press("End")
    assert page.locator(".token-view table").inner_text() != first

    page.reload()
    expect(page.get_by_role("textbox", name="Text", exact=True)).to_have_value(text, timeout=SLOW)
    expect(page.locator(".tv-token").first).to_be_attached(timeout=SLOW)
    assert page.locator(".tv-text").evaluate(plain) == text

    for size in (TABLET, PHONE):
        page.set_viewport_size(size)
        page.wait_for_selector(SETTLED)
        assert page.evaluate(FITS), size
