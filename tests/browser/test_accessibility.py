"""Every page in both themes: axe finds nothing serious, a phone shows all of it, and the keyboard reaches it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, TimeoutError, expect

from tests.api_server import unused_port
from tests.browser.conftest import QUICK, RunningWorkbench
from tests.browser.test_login import running
from ui.pages.catalog import all_pages
from workbench.settings import Settings

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
AXE = Path(__file__).with_name("axe.min.js").read_text(encoding="utf-8")  # axe-core, as its makers publish it
SERIOUS = """async () => {
  const answer = await axe.run(document, {resultTypes: ["violations"], iframes: false});
  const counts = (one) => ["serious", "critical"].includes(one.impact) || one.id === "heading-order";
  const serious = answer.violations.filter(counts);
  const words = (rule, node) => `${rule}: ${node.html.slice(0, 200)} ${node.failureSummary}`;
  return serious.flatMap((one) => one.nodes.map((node) => words(one.id, node)));
}"""
FITS = """() => {
  const main = document.querySelector("[data-testid=stMain]");
  return main.scrollWidth <= main.clientWidth + 1;
}"""
POPOVERS = ("", "experts", "experts?experts.chosen=first/code", "mixtures?mixture=first", "jobs")  # pages with some
POPOVERS += ("corpora?part=Imports+%26+what+was+refused",)
SETTLED = "[data-testid=stApp][data-test-script-state=notRunning]"
STILL = "() => !document.getAnimations().some((one) => one instanceof CSSTransition)"  # no colour or opacity on its way
WIDE, TABLET, PHONE = (
    {"width": 1440, "height": 900},
    {"width": 1024, "height": 900},
    {"width": 390, "height": 844},
)


@pytest.fixture
def empty_studio(home: Path) -> Iterator[RunningWorkbench]:
    """The studio of a registry that holds nothing."""
    settings = Settings(home=home, api_port=unused_port(), studio_port=unused_port())
    with running(settings, "-m", "ui.serving.studio_server") as studio:
        yield studio


@pytest.mark.slow
def test_axe_finds_nothing_serious_on_a_page_with_something_on_it(servers: Any, chromium: Browser) -> None:
    assert faults_of(servers, chromium) == ""


@pytest.mark.long
@pytest.mark.slow
def test_axe_finds_nothing_serious_in_the_tabs_of_an_expert(servers: Any, chromium: Browser) -> None:
    faults = []
    for theme in ("light", "dark"):
        context = chromium.new_context(color_scheme=theme, viewport=WIDE)
        page = context.new_page()
        page.set_default_timeout(QUICK)
        open_page(page, f"{servers.studio}/experts?experts.chosen=first/code")
        tabs = page.get_by_role("tablist").first.get_by_role("tab")
        expect(tabs).to_have_count(10)
        for name in tabs.all_inner_texts():
            tabs.filter(has_text=name).click()
            expect(tabs.filter(has_text=name)).to_have_attribute("aria-selected", "true")
            expect(page.locator(SETTLED)).to_be_visible()
            faults += [f"{name}, {theme}: {fault}" for fault in serious(page)]
        context.close()
    assert "\n".join(faults) == ""


@pytest.mark.long
@pytest.mark.slow
def test_axe_finds_nothing_serious_in_a_popover_and_escape_gives_the_focus_back(
    servers: Any, chromium: Browser
) -> None:
    faults, opened = [], set()
    for theme in ("light", "dark"):
        context = chromium.new_context(color_scheme=theme, viewport=WIDE)
        page = context.new_page()
        page.set_default_timeout(QUICK)
        for address in POPOVERS:
            open_page(page, f"{servers.studio}/{address}")
            for button in page.get_by_test_id("stPopover").locator("button").filter(visible=True).all():
                name = button.inner_text()
                open_popover(page, button)
                faults += [f"{address}, {name}, {theme}: {fault}" for fault in serious(page)]
                page.keyboard.press("Escape")
                expect(page.get_by_test_id("stPopoverBody")).to_have_count(0)
                expect(button).to_be_focused()
                opened.add(address)
        context.close()
    assert "\n".join(faults) == ""
    assert opened == set(POPOVERS)


@pytest.mark.long
@pytest.mark.slow
def test_axe_finds_nothing_serious_on_an_empty_page(empty_studio: RunningWorkbench, chromium: Browser) -> None:
    assert faults_of(empty_studio, chromium) == ""


def faults_of(servers: RunningWorkbench, chromium: Browser) -> str:
    """What is wrong on any page, in both themes, one fault in a line."""
    faults = []
    for theme in ("light", "dark"):
        context = chromium.new_context(color_scheme=theme, viewport=WIDE)
        page = context.new_page()
        page.set_default_timeout(QUICK)
        for one in all_pages():
            open_page(page, f"{servers.studio}/{one.address}")
            faults += [f"{one.title}, {theme}: {fault}" for fault in serious(page)]
            for size in (TABLET, PHONE):
                page.set_viewport_size(size)
                expect(page.locator(SETTLED)).to_be_visible()
                try:
                    page.wait_for_function(FITS)  # a table takes a moment to follow the window
                except TimeoutError:
                    faults.append(f"{one.title}, {theme}: wider than {size['width']} pixels")
            faults += [f"{one.title}, {theme}, phone: {fault}" for fault in serious(page)]
            page.set_viewport_size(WIDE)
        context.close()
    return "\n".join(faults)


def popover_faults(page: Page, name: str) -> list[str]:
    """What axe finds in an open popover, in the theme of the page; it is closed again."""
    button = page.get_by_test_id("stPopover").locator("button").filter(has_text=name)
    open_popover(page, button)
    faults = serious(page)
    page.keyboard.press("Escape")
    expect(page.get_by_test_id("stPopoverBody")).to_have_count(0)
    return faults


def open_popover(page: Page, button: Locator) -> None:
    """Opens a popover and waits for what it holds, which is drawn after its first opening."""
    button.click()
    expect(page.get_by_test_id("stPopoverBody").get_by_test_id("stElementContainer").first).to_be_visible()
    expect(page.locator(SETTLED)).to_be_visible()


def open_page(page: Page, address: str) -> None:
    page.goto(address)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.locator(SETTLED)).to_be_visible()
    expect(page.get_by_test_id("stSkeleton")).to_have_count(0)


def serious(page: Page) -> list[str]:
    """What axe finds, at a second look where there is any: while a part of a page is drawn anew, its colours fade."""
    page.evaluate(AXE)
    faults: list[str] = page.evaluate(SERIOUS)
    if faults:
        expect(page.locator(SETTLED)).to_be_visible()
        expect(page.locator("[data-stale=true]")).to_have_count(0)
        page.wait_for_function(STILL)  # the colours come back over a second after the last part is drawn
        faults = page.evaluate(SERIOUS)
    return faults


def test_the_keyboard_goes_from_page_to_page(empty_studio: RunningWorkbench, page: Page) -> None:
    open_page(page, f"{empty_studio.studio}/reports")
    press_until(page, "Data")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Data", level=1)).to_be_visible()
    press_until(page, "Clusters")
    page.keyboard.press("Enter")
    expect(page.get_by_text("There is no clustering yet.")).to_be_visible()


def press_until(page: Page, link: str) -> None:
    """Presses Tab until a link has the focus, which must be seen."""
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.innerText") == link:
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
            return
    raise AssertionError(f"Tab does not reach “{link}”")


def test_a_phone_reaches_every_entry_in_one_tap(empty_studio: RunningWorkbench, page: Page) -> None:
    page.set_viewport_size(PHONE)
    open_page(page, empty_studio.studio)
    page.get_by_role("link", name="Mixtures", exact=True).first.click()
    expect(page.get_by_role("heading", name="Mixtures", level=1)).to_be_visible()
    expect(page.get_by_text("There is no mixture yet.")).to_be_in_viewport()  # nothing lies over the page
