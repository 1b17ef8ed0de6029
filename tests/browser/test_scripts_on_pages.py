"""Whatever experts, domains, clusters, jobs, reports and texts are called and say, no script runs on any page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import RunningWorkbench, up_in
from tests.browser.hostile_home import make_hostile
from tests.browser.test_accessibility import SETTLED, open_page
from tests.browser.test_hundred_scripts import OPEN, PAYLOADS, Window, window  # noqa: F401  # a fixture
from ui.pages.catalog import all_pages
from workbench.settings import Settings

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(900)]
SHOWS_NO_NAME = {"selfcheck": "it holds laws and numbers", "replications": "no replication was made here"}
CHOICES = {"search": "?q=ran"}  # which most of the texts hold


@pytest.fixture(scope="module")
def hostile(trained_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningWorkbench]:
    """A running workbench over a hostile home."""
    folder = tmp_path_factory.mktemp("hostile")
    home = folder / "before" / "home"
    shutil.copytree(trained_home, home)
    make_hostile(Settings(home=home))
    with up_in(home, folder) as servers:
        yield servers


@pytest.mark.parametrize("address", [page.address for page in all_pages()])
def test_no_script_runs_on_a_page_of_the_studio(address: str, hostile: RunningWorkbench, window: Window) -> None:  # noqa: F811
    open_page(window.page, f"{hostile.studio}/{address}{CHOICES.get(address, '')}")
    tabs = window.page.get_by_role("tab").filter(visible=True)
    for number in range(tabs.count()):
        tabs.nth(number).click()
        expect(window.page.locator(SETTLED)).to_be_visible()
        window.read()
    window.page.evaluate(OPEN)
    window.look()
    assert window.harm == []
    assert bool(window.shown()) != (address in SHOWS_NO_NAME), "texts must be seen, else the test cannot fail"


def test_no_script_runs_in_the_playground(hostile: RunningWorkbench, window: Window) -> None:  # noqa: F811
    window.page.goto(hostile.playground)
    expect(window.page.get_by_role("textbox").first).to_be_visible()
    lists = window.page.get_by_role("listbox").filter(visible=True)
    for number in range(lists.count()):
        lists.nth(number).click()
        window.read()
        window.page.keyboard.press("Escape")
    window.look()
    assert window.harm == []
    assert window.shown()
