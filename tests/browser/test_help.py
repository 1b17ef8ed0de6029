"""The help in a browser: its search finds a page, without a network and without a fault in the console."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, expect
from starlette.applications import Starlette
from starlette.middleware import Middleware

from tests.api_server import unused_port
from tests.browser.conftest import RunningWorkbench
from tests.browser.test_accessibility import AXE, PHONE, SERIOUS, WIDE, open_page
from tests.test_help import built
from ui.serving.help_site import help_routes
from ui.serving.security import Guard, studio_rules
from workbench.settings import Settings

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the built help behind the studio's guard."""
    folder = tmp_path_factory.mktemp("help")
    settings = Settings(home=folder / "home", no_auth=True, studio_port=unused_port())
    guard = Middleware(Guard, settings=settings, rules=studio_rules(settings))
    app = Starlette(routes=help_routes(built(folder / "site")), middleware=[guard])
    server = uvicorn.Server(uvicorn.Config(app, port=settings.studio_port, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield f"http://127.0.0.1:{settings.studio_port}/help/"
    finally:
        server.should_exit = True
        thread.join()


def test_the_search_finds_a_page_and_nothing_is_refused(site: str, page: Page) -> None:
    faults: list[str] = []
    page.on("console", lambda message: faults.append(message.text) if message.type != "log" else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(site)
    page.get_by_role("textbox", name="Search").press_sequentially("temperature of a cluster gate")
    result = page.locator(".md-search-result__link").first
    expect(result).to_be_visible()
    result.click()
    expect(page.locator("article mark").first).to_be_visible()  # the words that were searched for
    assert faults == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious_and_a_phone_shows_all_of_it(site: str, chromium: Browser, theme: str) -> None:
    context = chromium.new_context(color_scheme=theme)  # type: ignore[arg-type]
    page = context.new_page()
    for path in ("index.html", "how_to/mode.html", "settings.html"):
        page.set_viewport_size(WIDE)
        page.goto(site + path)
        scheme = page.locator("body").get_attribute("data-md-color-scheme")
        assert scheme == {"light": "default", "dark": "slate"}[theme]
        page.evaluate(AXE)
        assert page.evaluate(SERIOUS) == []
        page.set_viewport_size(PHONE)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    context.close()


def test_a_page_of_the_studio_opens_its_part_of_the_help(servers: RunningWorkbench, page: Page) -> None:
    open_page(page, f"{servers.studio}/mixtures")
    with page.expect_popup() as opened:
        page.get_by_role("link", name="Help").click()
    expect(opened.value.get_by_role("heading", level=1)).to_be_visible()  # also where `make docs` was not run
    assert opened.value.url.endswith("/help/concepts.html#how-a-mixture-weighs-its-experts")
