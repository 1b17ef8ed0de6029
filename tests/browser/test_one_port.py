"""The workbench from elsewhere: a real Caddy with the kept Caddyfile serves all of it at one port, with TLS."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from playwright.sync_api import Browser, Page, expect
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.api_server import unused_port
from tests.browser.conftest import QUICK, RunningWorkbench, up_in
from ui.serving.login import login_link

CADDY = shutil.which("caddy")
CADDYFILE = Path(__file__).parents[2] / "deploy" / "Caddyfile"
NAME = "bench.localhost"  # browsers take such names for this machine, and the servers for another one's
TOKEN = "a token with a good many characters"
BEARER = {"authorization": f"Bearer {TOKEN}"}
PAGE = {"accept": "text/html"}
LOADED = 120_000  # milliseconds
NUM_TOKENS = 400

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(600),
    pytest.mark.skipif(CADDY is None, reason="there is no Caddy on this machine"),
]


@dataclass(frozen=True)
class Proxied:
    """A running workbench, and what another computer knows of it: one address, and whose certificates it trusts."""

    servers: RunningWorkbench
    trust: ssl.SSLContext

    @property
    def url(self) -> str:
        return self.servers.settings.public_url

    @property
    def place(self) -> str:
        return self.url.removeprefix("https://")

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, verify=self.trust, trust_env=False, timeout=60.0, **options)

    def open_socket(self, **headers: str) -> ClientConnection:
        """The web socket of the studio's pages."""
        origin: Any = headers.pop("Origin", self.url)
        address = f"wss://{self.place}/_stcore/stream"
        return connect(address, ssl=self.trust, origin=origin, additional_headers=headers, proxy=None)


@pytest.fixture(scope="module")
def proxied(trained_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    """`workbench up` with a public address, and Caddy before it."""
    folder, port = tmp_path_factory.mktemp("proxied"), unused_port()
    with up_in(trained_home, folder, public_url=f"https://{NAME}:{port}", token=TOKEN) as servers:
        settings = servers.settings
        variables = {
            "WORKBENCH_PUBLIC_URL": settings.public_url,
            "WORKBENCH_API_PORT": str(settings.api_port),
            "WORKBENCH_STUDIO_PORT": str(settings.studio_port),
            "XDG_DATA_HOME": str(folder / "data"),
            "XDG_CONFIG_HOME": str(folder / "config"),
        }
        command = [str(CADDY), "run", "--config", str(CADDYFILE), "--adapter", "caddyfile"]
        with (
            (folder / "caddy.log").open("w") as log,
            subprocess.Popen(command, env=os.environ | variables, cwd=folder, stdout=log, stderr=log) as caddy,
        ):
            try:
                root = folder / "data" / "caddy" / "pki" / "authorities" / "local" / "root.crt"
                wait_for(root, port, caddy)
                yield Proxied(servers, ssl.create_default_context(cafile=str(root)))
            finally:
                caddy.terminate()


def wait_for(root: Path, port: int, caddy: subprocess.Popen[bytes]) -> None:
    """Waits until Caddy has a certificate and answers with it."""
    over = time.monotonic() + 30
    while time.monotonic() < over:
        assert caddy.poll() is None, "Caddy ended by itself"
        try:
            trust = ssl.create_default_context(cafile=str(root))
            with socket.create_connection(("127.0.0.1", port)) as plain, trust.wrap_socket(plain, server_hostname=NAME):
                return
        except OSError:  # no file, no port or no certificate yet
            time.sleep(0.1)
    raise AssertionError("Caddy never answered")


@pytest.fixture(autouse=True)
def _named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Finds the name as a browser does: Python asks a name server, which does not know it."""
    find = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *rest, **more: find("127.0.0.1" if host == NAME else host, *rest, **more)
    )


@pytest.fixture
def window(chromium: Browser, proxied: Proxied) -> Iterator[Page]:
    """A window of another computer: whatever it asks for must be requested at the one port."""
    context = chromium.new_context(viewport={"width": 1400, "height": 1000}, ignore_https_errors=True)
    page = context.new_page()
    page.set_default_timeout(QUICK)
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    page.on("websocket", lambda opened: requested.append(opened.url))
    yield page
    context.close()
    own = (f"{proxied.url}/", f"wss://{proxied.place}/", "data:", "blob:")
    assert any(url.startswith("wss:") for url in requested)
    assert [url for url in requested if not url.startswith(own)] == []


def test_without_the_token_nothing_but_a_login_answers(proxied: Proxied) -> None:
    with proxied.client() as visitor:
        for path in ("/", "/jobs", "/play/"):
            shown = visitor.get(path, headers=PAGE)
            assert (shown.status_code, "This workbench requires a login." in shown.text) == (401, True)
        for path in ("/v1/models", "/docs", "/openapi.json", "/metrics", "/play/config", "/_stcore/health"):
            assert visitor.get(path).status_code == 401
            assert visitor.get(path, headers={"authorization": "Bearer another"}).status_code == 401
            assert visitor.get(path, headers=BEARER).status_code == 200
    with pytest.raises(InvalidStatus, match="401"):
        proxied.open_socket()
    with proxied.open_socket(Authorization=BEARER["authorization"]):
        pass


def test_another_name_is_refused(proxied: Proxied) -> None:
    """Caddy passes nothing on but of its own name; the servers themselves refuse another one."""
    settings = proxied.servers.settings
    with proxied.client(headers=BEARER) as client:
        for foreign in ("evil.example", "127.0.0.1", f"localhost:{settings.studio_port}"):
            refused = client.get("/v1/models", headers={"host": foreign})
            assert (refused.content, "content-security-policy" in refused.headers) == (b"", False)
        assert client.get("/v1/models").json()["data"]
        for origin in ("https://evil.example", f"https://{NAME}"):
            assert client.get("/v1/models", headers={"origin": origin}).json()["error"]["code"] == "foreign_origin"
    for port in (settings.api_port, settings.studio_port):
        direct = httpx.get(
            f"http://127.0.0.1:{port}/", headers={**BEARER, "host": "evil.example"}, trust_env=False, timeout=60
        )
        assert (direct.status_code, direct.json()["error"]["code"]) == (403, "foreign_host")
    for origin in ("https://evil.example", f"http://127.0.0.1:{settings.studio_port}"):
        with pytest.raises(InvalidStatus, match="403"):
            proxied.open_socket(Origin=origin, Authorization=BEARER["authorization"])


def test_a_browser_logs_in_and_uses_all_of_it_through_the_one_port(
    proxied: Proxied, window: Page, tmp_path: Path
) -> None:
    link = login_link(proxied.servers.settings)
    assert link.startswith(f"{proxied.url}/login?link=")
    window.goto(link)
    expect(window.get_by_role("heading", name="Overview")).to_be_visible(timeout=LOADED)
    [cookie] = [one for one in window.context.cookies() if one["name"].startswith("workbench_")]
    assert (cookie["secure"], cookie["httpOnly"], cookie["sameSite"]) == (True, True, "Strict")

    the_playground_answers(proxied, window)
    a_file_is_uploaded(window, tmp_path / "poems.txt")
    a_logout_ends_it(proxied, window)


def the_playground_answers(proxied: Proxied, window: Page) -> None:
    window.get_by_role("link", name="Playground").click()
    frame = window.frame_locator("iframe")
    expect(frame.locator("#chips-a .chip").first).to_be_visible(timeout=LOADED)
    frame.get_by_role("button", name="Generate", exact=True).click()
    expect(frame.locator("#answer-a .tv-token").first).to_be_visible(timeout=LOADED)
    separate = window.get_by_role("link", name="Open in a new window")
    expect(separate).to_have_attribute("href", f"{proxied.url}/play/")


def a_file_is_uploaded(window: Page, file: Path) -> None:
    file.write_text("Shall I compare thee to a summer's day? " * 20_000, encoding="utf-8")
    window.get_by_role("link", name="Train", exact=True).first.click()
    window.get_by_text("Import text").first.click(timeout=LOADED)
    window.locator("input[type=file]").set_input_files(file)
    expect(window.get_by_text(file.name).first).to_be_visible(timeout=LOADED)
    expect(window.get_by_role("button", name="Import the text")).to_be_enabled(timeout=LOADED)


def a_logout_ends_it(proxied: Proxied, window: Page) -> None:
    window.goto(proxied.url)
    window.get_by_role("button", name="All processes run").click()
    window.get_by_role("link", name="Log out").click()
    window.get_by_role("button", name="Log out").click()
    expect(window.get_by_text("You are logged out.")).to_be_visible()
    for path in ("/", "/play/"):
        window.goto(proxied.url + path)
        expect(window.get_by_text("This workbench requires a login.")).to_be_visible()


def test_an_answer_streams_through_the_port(proxied: Proxied) -> None:
    options: dict[str, Any] = {"model": "first", "prompt": "The tenant shall", "seed": 1}
    with openai.OpenAI(
        base_url=f"{proxied.url}/v1", api_key=TOKEN, http_client=proxied.client(), max_retries=0
    ) as client:
        client.completions.create(**options, max_tokens=1)  # the model is loaded now
        started, arrivals = time.monotonic(), list[float]()
        for _ in client.completions.create(**options, max_tokens=NUM_TOKENS, stream=True):
            arrivals.append(time.monotonic() - started)
        assert len(arrivals) > NUM_TOKENS / 2
        assert arrivals[0] < arrivals[-1] / 2, "the answer was held back until its end"
        with pytest.raises(openai.AuthenticationError):
            client.with_options(api_key="another").completions.create(**options, max_tokens=1)
