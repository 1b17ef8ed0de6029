"""A studio process of its own: without a login nothing of it is seen, and no other page may speak to it."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Receive, Scope, Send
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from engine.device import python_command, python_environment
from tests.api_server import unused_port
from ui.serving.attempts import MAX_FAILURES, MAX_WAITING, SLOW_SECONDS, Attempts
from ui.serving.browser import studio_answers
from ui.serving.login import Login, login_link
from ui.serving.security import Guard, api_rules, studio_rules
from workbench.settings import Settings

TOKEN = "a token with a good many characters"
# One of each kind of route: the page, the studio's own files, the server's state, media, uploads, components, logins.
PLACES = (
    "/",
    "/train",
    "/index.html",
    "/_stcore/health",
    "/_stcore/host-config",
    "/_stcore/metrics",
    "/media/x.txt",
    "/_stcore/upload_file/session/file",
    "/component/x/index.html",
    "/_stcore/bidi-components/x",
    "/auth/login",
    "/help/",
)
PAGE = {"accept": "text/html"}
with_token = pytest.mark.parametrize("studio", [TOKEN], indirect=True, ids=["token"])


@pytest.fixture(scope="module", params=[TOKEN, ""], ids=["token", "no-token"])
def studio(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Settings of a studio that runs, with a token and without."""
    home = tmp_path_factory.mktemp("studio")
    settings = Settings(home=home, studio_port=unused_port(), token=request.param)
    variables = {
        "HOME": home,
        "TOKEN": request.param,
        "STUDIO_PORT": settings.studio_port,
        "API_PORT": settings.api_port,
    }
    environment = (
        os.environ | python_environment() | {f"WORKBENCH_{name}": str(value) for name, value in variables.items()}
    )
    with subprocess.Popen(python_command("ui.serving.studio_server"), env=environment, cwd=home) as process:
        try:
            wait_for(settings, process)
            yield settings
        finally:
            process.terminate()


def wait_for(settings: Settings, process: subprocess.Popen[bytes]) -> None:
    over = time.monotonic() + 60
    while time.monotonic() < over:
        assert process.poll() is None, "the studio has ended"
        try:
            httpx.get(f"{place(settings)}/_stcore/health", trust_env=False, timeout=60)
        except httpx.TransportError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError("the studio never answered")


@pytest.fixture
def another(studio: Settings) -> Iterator[httpx.Client]:
    """A browser that nobody logged in."""
    with httpx.Client(base_url=place(studio), trust_env=False, timeout=60) as client:
        yield client


@pytest.fixture
def owner(studio: Settings, another: httpx.Client) -> httpx.Client:
    """A browser that was logged in, where there is anything to log in to."""
    if studio.token.get_secret_value():
        another.get(login_link(studio))
    return another


def place(settings: Settings) -> str:
    return f"http://127.0.0.1:{settings.studio_port}"


def open_socket(client: httpx.Client, **headers: str) -> ClientConnection:
    """The web socket that every page of the studio is drawn through."""
    shown = {"Cookie": "; ".join(f"{name}={value}" for name, value in client.cookies.items()), **headers}
    address = f"ws://{client.base_url.netloc.decode()}/_stcore/stream"
    own = f"http://{client.base_url.netloc.decode()}"
    return connect(address, origin=shown.pop("Origin", own), additional_headers=shown, proxy=None)  # type: ignore[arg-type]


def first_words(connection: ClientConnection) -> ForwardMsg:
    connection.send(BackMsg(rerun_script={"query_string": ""}).SerializeToString())
    message = ForwardMsg()
    message.ParseFromString(bytes(connection.recv(timeout=30)))
    return message


@pytest.mark.parametrize("path", PLACES)
@with_token
def test_without_a_login_no_route_answers(another: httpx.Client, path: str) -> None:
    own = {"origin": str(another.base_url).rstrip("/")}
    assert another.get(path).json()["error"]["code"] == "invalid_api_key"
    for method in ("PUT", "POST", "DELETE"):
        assert another.request(method, path, headers=own, content=b"x").status_code == 401
    assert "www-authenticate" not in another.get(path).headers  # a browser would ask in a window of its own


@with_token
def test_without_a_login_there_is_no_web_socket(studio: Settings, another: httpx.Client) -> None:
    with pytest.raises(InvalidStatus, match="401"):
        open_socket(another)
    another.cookies.set(Login(studio).cookie, "9999999999.forged.0")
    with pytest.raises(InvalidStatus, match="401"):
        open_socket(another)


@with_token
def test_a_visitor_is_prompted_for_the_token_in_words(another: httpx.Client) -> None:
    page = another.get("/train", headers=PAGE)
    assert page.status_code == 401
    assert "workbench login-link" in page.text
    assert "streamlit" not in page.text.lower()


@with_token
def test_a_link_logs_in_once(studio: Settings, another: httpx.Client) -> None:
    link = login_link(studio)
    let_in = another.get(link)
    cookie = let_in.headers["set-cookie"]
    assert all(flag in cookie for flag in ("HttpOnly", "SameSite=strict", "Path=/", "Max-Age="))
    assert TOKEN not in cookie
    assert 'url=/"' in let_in.text
    assert another.get("/", headers=PAGE).status_code == 200
    with open_socket(another) as connection:
        assert first_words(connection).WhichOneof("type")

    another.cookies.clear()
    again = another.get(link)
    assert again.status_code == 401
    assert "already used" in again.text
    assert "set-cookie" not in again.headers


@with_token
def test_the_token_may_be_typed(another: httpx.Client) -> None:
    own = {"origin": str(another.base_url).rstrip("/")}
    refused = another.post("/login", data={"token": "another"}, headers=own)
    assert (refused.status_code, "The token is wrong." in refused.text) == (401, True)
    assert another.post("/login", data={"token": "x" * 5000}, headers=own).status_code == 401
    assert another.post("/login", data={"token": TOKEN}).status_code == 403  # from nowhere
    assert another.post("/login", data={"token": TOKEN}, headers={"origin": "http://evil.example"}).status_code == 403
    let_in = another.post("/login", data={"token": TOKEN}, headers=own)
    assert (let_in.status_code, let_in.headers["location"]) == (303, "/")
    assert another.get("/", headers=PAGE).status_code == 200


@with_token
def test_a_logout_ends_the_login_for_whoever_has_the_cookie(owner: httpx.Client) -> None:
    own = {"origin": str(owner.base_url).rstrip("/")}
    kept = dict(owner.cookies)
    assert "<button>Log out</button>" in owner.get("/logout").text
    for foreign in ({}, {"origin": "http://evil.example"}):
        assert owner.post("/logout", headers=foreign).status_code == 403
    assert owner.get("/", headers=PAGE).status_code == 200

    left = owner.post("/logout", headers=own)
    page = httpx.get(own["origin"] + "/logout", trust_env=False, timeout=60)
    assert page.status_code == 200  # for everybody: it has one button
    assert "You are logged out." in left.text
    assert (dict(owner.cookies), owner.get("/", headers=PAGE).status_code) == ({}, 401)
    owner.cookies.update(kept)
    assert owner.get("/", headers=PAGE).status_code == 401
    with pytest.raises(InvalidStatus, match="401"):
        open_socket(owner)


@with_token
def test_a_program_may_send_the_token(studio: Settings, another: httpx.Client) -> None:
    assert another.get("/_stcore/health", headers={"authorization": f"Bearer {TOKEN}"}).text == "ok"
    assert studio_answers(studio)


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"host": "evil.example"}, "foreign_host"),
        ({"host": "192.168.1.7:8501"}, "foreign_host"),
        ({"origin": "http://evil.example"}, "foreign_origin"),
        ({"origin": "http://localhost:9999"}, "foreign_origin"),
        ({"origin": "null"}, "foreign_origin"),
        ({"sec-fetch-site": "cross-site"}, "foreign_site"),
        ({"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}, "foreign_site"),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}, "foreign_site"),
    ],
)
def test_another_page_is_refused_on_every_route(owner: httpx.Client, headers: dict[str, str], code: str) -> None:
    for path in ("/", "/_stcore/health", "/_stcore/host-config", "/media/x.txt"):
        assert owner.get(path, headers=headers).json()["error"]["code"] == code


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": "http://localhost:8501"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_another_page_cannot_open_the_web_socket(owner: httpx.Client, headers: dict[str, str]) -> None:
    with pytest.raises(InvalidStatus, match="403"):
        open_socket(owner, **headers)


def test_whoever_does_not_say_where_it_comes_from_changes_nothing(owner: httpx.Client) -> None:
    assert owner.put("/_stcore/upload_file/session/file", content=b"x").json()["error"]["code"] == "foreign_origin"
    none: Any = None
    with pytest.raises(InvalidStatus, match="403"):
        open_socket(owner, Origin=none)


def test_a_link_from_elsewhere_may_be_followed(owner: httpx.Client) -> None:
    headers = {**PAGE, "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert owner.get("/", headers=headers).status_code == 200


def test_the_studios_own_page_is_served_its_files_and_its_open_socket(owner: httpx.Client) -> None:
    page = owner.get("/", headers=PAGE)
    script = re.search(r'src="\./(static/[^"]+\.js)"', page.text)
    assert script
    own = {"origin": str(owner.base_url).rstrip("/"), "sec-fetch-site": "same-origin"}
    assert owner.get(f"/{script[1]}", headers=own).status_code == 200
    with open_socket(owner) as connection:
        assert first_words(connection).WhichOneof("type")


@pytest.mark.parametrize("path", ["/", "/_stcore/health", "/login", "/no/such/page"])
def test_no_page_but_its_own_may_frame_the_studio(owner: httpx.Client, path: str) -> None:
    for headers in ({}, {"sec-fetch-site": "cross-site"}):
        shown = owner.get(path, headers=headers).headers
        assert "frame-ancestors 'self';" in shown["content-security-policy"]
        assert shown["x-frame-options"] == "SAMEORIGIN"
        assert shown["x-content-type-options"] == "nosniff"
        assert shown["referrer-policy"] == "same-origin"


@with_token
def test_the_token_is_in_no_process_list(studio: Settings) -> None:
    words = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    assert any("ui.serving.studio_server" in line for line in words)
    assert not [line for line in words if any(TOKEN in word for word in line)]


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds for which a login page would have held its answers back."""
    kept: list[float] = []

    async def pause(seconds: float) -> None:
        kept.append(seconds)

    monkeypatch.setattr(Attempts.__init__, "__defaults__", (pause, time.monotonic))
    return kept


def test_after_many_wrong_tokens_the_right_one_is_let_in_and_each_try_is_slow(
    tmp_path: Path, pauses: list[float]
) -> None:
    client = browser(Settings(home=tmp_path, token=TOKEN))
    codes = [client.post("/login", data={"token": "wrong"}).status_code for _ in range(MAX_FAILURES + 2)]
    assert codes == [401] * MAX_FAILURES + [429] * 2
    assert client.post("/login", data={"token": TOKEN}, follow_redirects=False).status_code == 303
    assert pauses == [SLOW_SECONDS] * 3  # also the right one: what comes sooner would tell which it is


def test_a_login_that_comes_with_an_old_password_is_neither_slowed_nor_counted(
    tmp_path: Path, pauses: list[float]
) -> None:
    client = browser(Settings(home=tmp_path, token=TOKEN))
    client.post("/login", data={"token": TOKEN}, follow_redirects=False)
    assert client.cookies
    codes = {client.get("/", auth=("somebody", "old")).status_code for _ in range(MAX_FAILURES + 3)}
    assert codes == {client.get("/").status_code}
    assert 401 not in codes
    assert not pauses


@pytest.mark.parametrize(("public", "slow"), [("https://bench.example.org", 0), ("", 1)])
def test_wrong_tokens_are_counted_by_the_address_that_a_configured_proxy_saw(
    tmp_path: Path, pauses: list[float], public: str, slow: int
) -> None:
    """What a client wrote before it, and what anybody writes where there is no proxy, is not believed."""
    client = browser(Settings(home=tmp_path, token=TOKEN, public_url=public), client=("127.0.0.1", 5))

    def type_from(address: str, token: str) -> int:
        headers = {"x-forwarded-for": f"10.9.9.9, {address}"}
        return client.post("/login", data={"token": token}, headers=headers, follow_redirects=False).status_code

    for _ in range(MAX_FAILURES):
        assert type_from("192.0.2.1", "wrong") == 401
    assert type_from("192.0.2.2", TOKEN) == 303
    assert len(pauses) == slow
    assert (type_from("192.0.2.1", "wrong"), len(pauses)) == (429, 2 - bool(public))


@pytest.mark.usefixtures("pauses")
@pytest.mark.parametrize("form", [b"token=\xff", b"token=%FF", b"\xff=\xff", b"&".join([b"a=b"] * 99), b""])
def test_a_form_of_any_bytes_is_a_wrong_token(tmp_path: Path, form: bytes) -> None:
    client = browser(Settings(home=tmp_path, token=TOKEN))
    kind = {"content-type": "application/x-www-form-urlencoded"}
    codes = [client.post("/login", content=form, headers=kind).status_code for _ in range(MAX_FAILURES + 1)]
    assert codes == [401] * MAX_FAILURES + [429]


@pytest.mark.parametrize("form", [False, True], ids=["header", "form"])
def test_more_tries_than_may_wait_are_refused_at_once_and_say_when_to_return(tmp_path: Path, form: bool) -> None:
    app = Guard(send_ok, Settings(home=tmp_path, token=TOKEN), api_rules(Settings(home=tmp_path, token=TOKEN)))
    wrong = {"authorization": "Basic " + base64.b64encode(b"any:wrong").decode()}

    async def guess(client: httpx.AsyncClient) -> httpx.Response:
        if form:
            return await client.post("/login", data={"token": "wrong"})
        return await client.get("/play/", headers=wrong)

    async def together() -> list[httpx.Response]:
        own = "http://127.0.0.1:8000"
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url=own, headers={"origin": own}) as client:
            for _ in range(MAX_FAILURES):
                assert (await guess(client)).status_code == 401
            tries = [asyncio.create_task(guess(client)) for _ in range(MAX_WAITING + 3)]
            refused, waiting = await asyncio.wait(tries, return_when="FIRST_COMPLETED")
            for task in waiting:
                task.cancel()
            return [task.result() for task in refused]

    refused = asyncio.run(together())
    assert {answer.status_code for answer in refused} == {429}
    assert {answer.headers["retry-after"] for answer in refused} == {str(MAX_WAITING)}


@pytest.fixture
def heard(free_port: int) -> Iterator[list[str]]:
    """The headers of what is asked of another program on the studio's port, which also wants a login."""
    shown: list[str] = []

    class OtherProgram(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            shown.append(str(self.headers))
            self.send_response(401)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", free_port), OtherProgram) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield shown
        server.shutdown()
        thread.join()


def test_a_program_at_the_port_does_not_get_the_token(tmp_path: Path, heard: list[str], free_port: int) -> None:
    studio_answers(Settings(home=tmp_path, token=TOKEN, studio_port=free_port))
    assert len(heard) == 1
    assert TOKEN not in heard[0]


@with_token
def test_another_workbenchs_studio_is_not_ours(studio: Settings, tmp_path: Path) -> None:
    assert not studio_answers(Settings(home=tmp_path, token=TOKEN, studio_port=studio.studio_port))


async def send_ok(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("ok")(scope, receive, send)


def browser(settings: Settings, app: ASGIApp = send_ok, client: tuple[str, int] = ("testclient", 5)) -> TestClient:
    guard = Guard(app, settings, studio_rules(settings))
    own = "http://127.0.0.1:8501"
    return TestClient(guard, base_url=own, headers={"origin": own}, client=client)


@pytest.mark.parametrize(
    "path", ["..%2f..%2f..%2fetc/passwd", "%2e%2e/%2e%2e/etc/passwd", "..%5c..%5cetc%5cpasswd", "%2fetc%2fpasswd"]
)
def test_cve_2022_35918_and_cve_2024_42474(owner: httpx.Client, path: str) -> None:
    """Streamlit: the routes of components and of static files (on Windows) led out of their folders."""
    for route in ("/component/streamlit.x/", "/_stcore/bidi-components/x/", "/app/static/", "/static/", "/media/"):
        answer = owner.get(route + path)
        assert "root:" not in answer.text
        assert answer.status_code in (400, 403, 404) or "<!doctype html>" in answer.text.lower(), route


@with_token
def test_a_header_without_end_is_refused_without_a_token(studio: Settings) -> None:
    with socket.create_connection(("127.0.0.1", studio.studio_port), timeout=60) as line:
        line.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nx-long: " + b"a" * (128 << 10))
        assert line.recv(100).startswith(b"HTTP/1.1 431 ")
