"""The overview and the page Mixtures in a browser: the picture, names that are text, a toggle, nothing drawn anew."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from tests.api_server import unused_port
from tests.browser.conftest import RunningWorkbench
from tests.browser.test_accessibility import FITS, PHONE, TABLET, open_page
from tests.browser.test_live_parts import WATCH
from tests.browser.test_login import running
from tests.ui.studio.conftest import HOSTILE, fill
from workbench.registry import experts
from workbench.registry.database import close_engines, transaction
from workbench.settings import Settings

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
PATIENCE = 60_000  # milliseconds
MARKUP = "<img src=x onerror=document.title='taken'>"


@pytest.fixture
def studio(home: Path) -> Iterator[RunningWorkbench]:
    """The studio of a filled registry, in which names look like markup."""
    settings = Settings(home=home, api_port=unused_port(), studio_port=unused_port())
    fill(settings)
    with transaction(settings) as session:
        experts.rename(session, "first/prose", MARKUP)
    close_engines()
    with running(settings, "-m", "ui.serving.studio_server") as studio:
        yield studio


def open_overview(page: Page, studio: RunningWorkbench) -> None:
    """Not `open_page`: a busy machine may look so slowly that one look follows another."""
    page.goto(studio.studio)
    expect(page.locator(".st-key-picture").get_by_text("first/code").first).to_be_attached(timeout=PATIENCE)


def test_the_picture_shows_names_as_text_and_leads_on_by_mouse_and_keys(studio: RunningWorkbench, page: Page) -> None:
    open_overview(page, studio)
    picture = page.locator(".st-key-picture")
    expect(picture.get_by_role("link", name=HOSTILE, exact=True)).to_be_visible()
    expect(picture.get_by_role("link", name=MARKUP)).to_be_visible()
    expect(page).not_to_have_title("taken")
    page.evaluate("window.stays = true")
    link = picture.get_by_role("link", name="first/code")
    link.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Experts", level=1)).to_be_visible()
    assert "experts.chosen=first" in page.url
    assert page.evaluate("window.stays")  # the session goes on: nothing was loaded anew
    page.go_back()
    expect(picture.get_by_role("link", name="first/code")).to_be_visible()


def test_a_phone_shows_the_picture_as_a_list(studio: RunningWorkbench, page: Page) -> None:
    page.set_viewport_size(PHONE)
    open_overview(page, studio)
    picture = page.locator(".st-key-picture")
    expect(picture.locator(".narrow")).to_be_visible()
    expect(picture.locator(".narrow")).to_contain_text(f"poemsnearest:Pr{MARKUP}")
    expect(picture.locator("svg")).to_be_hidden()
    page.wait_for_function(FITS)
    title = page.get_by_role("heading", name="Overview", level=1).bounding_box()
    step = page.locator(".st-key-next_step").bounding_box()
    assert title is not None
    assert step is not None
    assert title["y"] + title["height"] <= step["y"]  # the title first, the links below it


def test_only_the_live_part_of_the_page_is_drawn_again(studio: RunningWorkbench, page: Page) -> None:
    open_overview(page, studio)
    expect(page.locator(".st-key-picture").get_by_role("link", name="first/code")).to_be_visible()
    mark = "document.querySelector('.st-key-picture [data-testid]').marked"
    page.evaluate(f"{mark} = true")
    field = page.locator(".st-key-opening_field textarea")
    field.fill("a text that is being typed")
    page.evaluate(WATCH)
    page.wait_for_function("window.seen.looks >= 20")
    assert page.evaluate(mark)
    expect(field).to_have_value("a text that is being typed")


def test_a_text_is_read_while_it_is_written_and_a_switch_shows_the_words_that_change(
    servers: RunningWorkbench, page: Page
) -> None:
    page.goto(servers.studio)
    opening = page.locator(".st-key-opening")
    first, switch = opening.locator(".tv-token").first, opening.locator(".tv-switch").first
    expect(first).to_be_attached(timeout=PATIENCE)
    page.locator(".st-key-opening_field textarea").fill("")
    page.locator(".st-key-opening_field textarea").press_sequentially("def f1(a, b):\n    c = a + b")
    expect(first).to_have_text("def", timeout=PATIENCE)
    switch.focus()
    page.keyboard.press("Space")
    expect(switch).to_have_attribute("aria-pressed", "false")
    expect(opening.get_by_text(re.compile("^Without first/code"))).to_be_visible(timeout=PATIENCE)
    expect(switch).to_be_focused()
    expect(opening.locator(".tv-switch").nth(1)).to_be_disabled()  # the last one
    for size in (TABLET, PHONE):
        page.set_viewport_size(size)
        page.wait_for_function(FITS)
    page.keyboard.press("Space")
    expect(switch).to_have_attribute("aria-pressed", "true")
    expect(opening.get_by_text(re.compile("^Without first/code"))).to_be_hidden(timeout=PATIENCE)


def test_a_text_goes_on_in_the_playground_with_and_without_an_expert_and_its_answer_is_read_again(
    servers: RunningWorkbench, page: Page
) -> None:
    text = "def f1(a, b):"
    page.goto(f"{servers.studio}/posteriors?posterior.mixture=first&posterior.text={quote(text)}")
    expect(page.locator(".tv-token").first).to_be_attached(timeout=PATIENCE)
    page.locator(".tv-switch").first.click()
    expect(page.get_by_text("Without first/code").first).to_be_visible(timeout=PATIENCE)
    page.get_by_role("link", name="Go on with this text in Playground, with and without").click()
    inside = page.frame_locator("iframe").first
    expect(inside.locator("#prompt textarea")).to_have_value(text, timeout=PATIENCE)
    for pane, is_on in (("a", True), ("b", False)):
        chip = inside.locator(f"#chips-{pane}").get_by_label("first/code")
        expect(chip).to_be_checked(checked=is_on, timeout=PATIENCE)
    inside.locator("#prompt textarea").press("Control+Enter")
    expect(inside.locator(".state[data-done]:visible")).to_have_count(2, timeout=PATIENCE)
    with page.context.expect_page() as opened:
        inside.locator("#answer-a").get_by_role("link", name="in Posteriors").click()
    read = opened.value
    expect(read.locator(".tv-token").first).to_be_attached(timeout=PATIENCE)
    assert read.url.startswith(f"{servers.studio}/posteriors?")


def test_a_toggle_changes_the_numbers_in_place(servers: RunningWorkbench, page: Page) -> None:
    open_page(page, f"{servers.studio}/mixtures?mixture=first")
    row = page.get_by_role("row", name="law")
    expect(row.get_by_text("unchanged")).to_be_visible()
    page.evaluate("""() => {
      const hosts = [...document.querySelectorAll(".st-key-effect *")].filter((one) => one.shadowRoot);
      window.table = hosts.map((one) => one.shadowRoot.querySelector("table")).find(Boolean);
    }""")
    toggle = page.get_by_role("switch", name="law")
    toggle.focus()
    page.keyboard.press("Space")
    expect(row.get_by_text("↑ worse")).to_be_visible()
    expect(page.get_by_text("not saved: without first/law")).to_be_visible()
    assert page.evaluate("window.table.isConnected")
    page.get_by_role("button", name="Discard changes").click()
    expect(row.get_by_text("unchanged")).to_be_visible()
    expect(page.get_by_role("switch", name="law")).to_be_checked()
    page.get_by_role("link", name="Open in playground").click()
    expect(page.locator("iframe[src*='left=first']")).to_be_visible()
