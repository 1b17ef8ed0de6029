"""A browser logs in once, for the studio and the playground in it; a page on another port gets nothing."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.api_server import unused_port
from tests.browser.conftest import RunningWorkbench, environment, stop, wait_until_up
from tests.ui.studio.conftest import fill
from ui.serving.browser import page_to_open
from ui.serving.login import login_link
from workbench.access.users import add_user, revoke_user, user_id_of
from workbench.registry.database import close_engines, transaction
from workbench.settings import Settings

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
TOKEN = "a token with a good many characters"
OVERVIEW = "Overview"
LOADED = 30_000  # milliseconds
# What a page that means harm tries: the studio in a frame, its web socket, its files.
HARM = """<title>Harm</title><iframe id="frame" src="STUDIO/"></iframe><script>
window.came = {};
const socket = new WebSocket("STUDIO/_stcore/stream".replace("http", "ws"));
socket.onopen = () => window.came.socket = "open";
socket.onerror = () => window.came.socket ??= "refused";
fetch("STUDIO/_stcore/health", {credentials: "include", mode: "no-cors"}).finally(() => window.came.file = "asked");
</script>"""


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder and says nothing."""

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder that another server of this machine serves, and its address."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever).start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def settings(request: pytest.FixtureRequest, home: Path) -> Settings:
    """Of a filled registry whose weights are not real, with a token unless the test says otherwise."""
    settings = Settings(
        home=home, api_port=unused_port(), studio_port=unused_port(), token=getattr(request, "param", TOKEN)
    )
    fill(settings)
    close_engines()
    return settings


@contextmanager
def running(settings: Settings, *command: str) -> Iterator[RunningWorkbench]:
    """A command that starts servers; the studio answers, and where there is one the API."""
    with (settings.root / "test.log").open("w") as log:
        up = subprocess.Popen(
            [sys.executable, *command], env=environment(settings), stdout=log, stderr=log, start_new_session=True
        )
        try:
            wait_until_up(RunningWorkbench(settings), up, is_full="up" in command)
            yield RunningWorkbench(settings)
        finally:
            stop(up)


def test_a_login_holds_for_the_studio_and_the_playground_in_it(settings: Settings, page: Page) -> None:
    command = ("-c", "import sys; from ui.cli.app import main; sys.exit(main())", "up", "--no-browser")
    with running(settings, *command) as servers:
        an_unknown_visitor_sees_a_form(servers, page)
        a_link_logs_in_one_time(servers, page)
        the_token_may_be_typed(servers, page)
        the_page_that_the_browser_is_opened_with_leads_in(servers, page)
        a_viewer_reads_until_revoked(servers, page)


def an_unknown_visitor_sees_a_form(servers: RunningWorkbench, page: Page) -> None:
    page.goto(f"{servers.studio}/jobs")
    expect(page.get_by_text("This workbench requires a login.")).to_be_visible()
    expect(page.get_by_text(OVERVIEW)).to_have_count(0)


def a_link_logs_in_one_time(servers: RunningWorkbench, page: Page) -> None:
    link = login_link(servers.settings)
    page.goto(link)
    page.wait_for_url(f"{servers.studio}/")
    expect(page.get_by_role("heading", name=OVERVIEW)).to_be_visible()
    [cookie] = [one for one in page.context.cookies() if one["name"].startswith("workbench_")]
    assert (cookie["httpOnly"], cookie["sameSite"], TOKEN in cookie["value"]) == (True, "Strict", False)

    page.get_by_role("link", name="Playground").click()
    inside = page.frame_locator("iframe").get_by_role("button", name="Generate", exact=True)
    expect(inside).to_be_visible(timeout=LOADED)
    page.goto(servers.playground)
    expect(page.get_by_role("button", name="Generate", exact=True)).to_be_visible(timeout=LOADED)

    page.context.clear_cookies()
    page.goto(link)
    expect(page.get_by_text("This link was already used or has expired.")).to_be_visible()


def the_token_may_be_typed(servers: RunningWorkbench, page: Page) -> None:
    page.goto(servers.playground)
    page.get_by_label("enter the token").fill("not it")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_text("The token is wrong.")).to_be_visible()
    page.get_by_label("enter the token").fill(TOKEN)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("button", name="Generate", exact=True)).to_be_visible(timeout=LOADED)
    page.context.clear_cookies()


def the_page_that_the_browser_is_opened_with_leads_in(servers: RunningWorkbench, page: Page) -> None:
    address = page_to_open(servers.settings)
    assert address.startswith("file:///")
    page.goto(address)
    expect(page.get_by_role("heading", name=OVERVIEW)).to_be_visible()


def test_a_page_says_what_to_do_while_its_server_is_away_and_follows_the_next(settings: Settings, page: Page) -> None:
    command = ("-m", "ui.serving.studio_server")
    with running(settings, *command) as studio:
        page.goto(login_link(studio.settings))
        page.wait_for_url(f"{studio.studio}/")
        page.goto(f"{studio.studio}/mixtures")
        expect(page.get_by_text("These are the saved settings.")).to_be_visible()
        page.evaluate("window.wasLoadedBefore = true")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible(timeout=LOADED)
    expect(dialog.get_by_role("alert")).to_contain_text("workbench up")
    assert "internet" not in dialog.inner_text()
    with running(settings, *command):
        expect(dialog).to_have_count(0, timeout=LOADED)
        page.wait_for_function("!window.wasLoadedBefore", timeout=LOADED)
        page.locator('[data-testid="stCheckbox"] label').first.click()
        expect(page.get_by_text("These are the saved settings.")).to_have_count(0)


def a_viewer_reads_until_revoked(servers: RunningWorkbench, page: Page) -> None:
    with transaction(servers.settings) as session:
        add_user(session, "anna", "viewer")
        anna = user_id_of(session, "anna")
    page.context.clear_cookies()
    page.goto(login_link(servers.settings, anna))
    page.wait_for_url(f"{servers.studio}/")
    expect(page.get_by_text("You are logged in as anna, with the role viewer")).to_be_visible()
    with transaction(servers.settings) as session:
        revoke_user(session, "anna")
    ended = page.get_by_text("The login has ended.")
    page.get_by_role("link", name="Jobs").or_(ended).first.click()  # by the web socket that is open, as is a live part
    expect(ended.first).to_be_visible()
    page.goto(servers.studio)
    expect(page.get_by_text("This workbench requires a login.")).to_be_visible()


@pytest.mark.parametrize("settings", [TOKEN, ""], indirect=True, ids=["token", "no-token"])
def test_a_page_on_another_port_gets_nothing(settings: Settings, page: Page, elsewhere: tuple[Path, str]) -> None:
    with running(settings, "-m", "ui.serving.studio_server") as servers:
        if settings.token.get_secret_value():
            page.goto(login_link(settings))
            page.wait_for_url(f"{servers.studio}/")
        it_is_refused(servers, page, *elsewhere)
        page.set_content(f'<a href="{servers.studio}/">a link</a>')
        page.get_by_role("link").click()
        expect(page.get_by_role("heading", name=OVERVIEW)).to_be_visible()
        expect(page.get_by_test_id("stTopNav")).to_be_visible()
        expect(page.get_by_text("Deploy")).to_have_count(0)  # the settings beside the studio's script hold


def it_is_refused(servers: RunningWorkbench, page: Page, folder: Path, address: str) -> None:
    (folder / "harm.html").write_text(HARM.replace("STUDIO", servers.studio), encoding="utf-8")
    answers: dict[str, int] = {}
    page.on("response", lambda response: answers.update({response.url: response.status}))
    page.goto(f"{address}/harm.html")
    page.wait_for_function("window.came.socket && window.came.file")
    assert page.evaluate("window.came.socket") == "refused"
    requested = [f"{servers.studio}/_stcore/health", f"{servers.studio}/"]
    assert {url: answers.get(url) for url in requested} == dict.fromkeys(requested, 403)
    expect(page.frame_locator("#frame").get_by_text(OVERVIEW)).to_have_count(0)
