"""Nobody gets in by default: by another name, from another page, without the token, or with too much."""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.testclient import TestClient
from starlette.types import Message

from ui.addresses import own_addresses, require_safe_address
from ui.errors import UnsafeAddressError
from ui.serving import security
from ui.serving.login import Login
from ui.serving.security import MAX_BODY_BYTES, Bodies
from workbench.requests.body import MAX_NAMED
from workbench.settings import Settings

Open = Callable[..., TestClient]
LONG = "a token with a good many characters"


@pytest.mark.parametrize("name", ["127.0.0.1:8000", "localhost:8000", "localhost", "[::1]:8000"])
def test_loopback_names_are_let_in(enter: Open, name: str) -> None:
    assert enter().get("/healthz", headers={"host": name}).status_code == 200


@pytest.mark.parametrize(
    "name", ["evil.example", "127.0.0.1.evil.example", "192.168.1.7:8000", "", "[", "a@localhost.evil"]
)
def test_a_foreign_host_is_refused(enter: Open, name: str) -> None:
    assert enter().get("/healthz", headers={"host": name}).status_code == 403


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "http://127.0.0.1:9999", "http://localhost:8000", "", "http://[", "http://[x]"],
)
def test_a_page_of_another_site_cannot_drive_the_server(enter: Open, origin: str) -> None:
    response = enter().post("/v1/completions", headers={"origin": origin}, json={})

    assert response.status_code == 403
    assert response.json()["error"]["code"] == "foreign_origin"


@pytest.mark.parametrize(
    ("site", "mode", "place", "status"),
    [
        ("cross-site", "no-cors", "image", 403),
        ("same-site", "cors", "empty", 403),  # a page on another port of this machine
        ("same-site", "no-cors", "script", 403),
        ("cross-site", "navigate", "object", 403),
        ("cross-site", "", "", 403),
        ("cross-site", "navigate", "document", 200),  # a link that was followed
        ("same-site", "navigate", "iframe", 200),  # as the studio shows the playground; its policy says who else may
        ("same-origin", "cors", "empty", 200),
        ("none", "navigate", "document", 200),
    ],
)
def test_what_another_page_fetches_is_refused(enter: Open, site: str, mode: str, place: str, status: int) -> None:
    headers = {"sec-fetch-site": site, "sec-fetch-mode": mode, "sec-fetch-dest": place}
    assert enter().get("/healthz", headers=headers).status_code == status


def test_another_page_cannot_send_a_form(enter: Open) -> None:
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    answer = enter().post("/v1/completions", headers=headers, json={})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "foreign_site")


def test_the_servers_own_page_is_let_in(enter: Open) -> None:
    assert enter().get("/healthz", headers={"origin": "http://127.0.0.1:8000"}).status_code == 200


def test_with_a_token_only_who_knows_it_is_let_in(enter: Open) -> None:
    client = enter(token="s3cret")

    assert client.get("/v1/models").status_code == 401
    assert client.get("/v1/models", headers={"authorization": "Bearer wrong"}).status_code == 401
    assert client.get("/v1/models", headers={"authorization": "Bearer s3cret"}).status_code == 200


def test_a_browser_may_give_the_token_as_a_password(enter: Open) -> None:
    password = base64.b64encode(b"anybody:s3cret").decode()
    client = enter(token="s3cret")

    assert client.get("/healthz").headers["www-authenticate"].startswith("Basic")
    assert client.get("/healthz", headers={"authorization": f"Basic {password}"}).status_code == 200
    for wrong in (b"Basic ???", b"Basic \xff", b"Bearer \xff"):
        assert client.get("/healthz", headers={b"authorization": wrong}).status_code == 401


def test_a_caller_of_another_workbench_is_informed_before_the_token_is_checked(enter: Open) -> None:
    answer = enter(token="s3cret").get("/healthz", headers={"x-workbench-registry": "another"})
    assert answer.json()["error"]["code"] == "foreign_registry"


def test_a_login_at_the_studio_holds_here_too(enter: Open, mixed: Path) -> None:
    client = enter(token="s3cret")
    login = Login(Settings(home=mixed, token="s3cret"))
    client.cookies.set(login.cookie, login.new_session(), domain="127.0.0.1")

    assert client.get("/v1/models").status_code == 200
    # What a cookie lets in, another site could have sent, unless the browser says that it did not.
    assert client.post("/v1/workbench/mix", json={}).json()["error"]["code"] == "foreign_origin"
    own = {"origin": "http://127.0.0.1:8000"}
    assert client.post("/v1/workbench/mix", json={}, headers=own).json()["error"]["code"] == "bad_request"


def test_a_browser_gets_a_login_page_and_a_frame_gets_a_password_prompt(enter: Open) -> None:
    client = enter(token="s3cret")
    page = client.get("/play/", headers={"accept": "text/html", "sec-fetch-dest": "document"})
    assert (page.status_code, "www-authenticate" in page.headers) == (401, False)
    assert "<form" in page.text
    assert (
        "www-authenticate" in client.get("/play/", headers={"accept": "text/html", "sec-fetch-dest": "iframe"}).headers
    )

    own = {"origin": "http://127.0.0.1:8000"}
    client.post("/login", data={"token": "s3cret"}, headers=own, follow_redirects=False)
    assert client.get("/v1/models").status_code == 200


@pytest.mark.parametrize("address", ["0.0.0.0", "192.168.1.7", "::", "example.org"])
def test_another_address_without_a_token_is_refused(enter: Open, address: str) -> None:
    with pytest.raises(UnsafeAddressError, match="WORKBENCH_TOKEN"):
        enter(host=address)
    require_safe_address(Settings(host=address, token=LONG))


def test_on_every_interface_only_this_machine_s_addresses_and_name_are_ours(
    enter: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(security, "own_addresses", lambda: {"192.168.1.7", "fe80::1"})
    monkeypatch.setattr(socket, "gethostname", lambda: "Desktop")
    client = enter(host="0.0.0.0", token=LONG)
    client.headers["authorization"] = f"Bearer {LONG}"

    for ours in ("192.168.1.7:8000", "[fe80::1]:8000", "desktop:8000", "DESKTOP", "127.0.0.1:8000"):
        assert client.get("/healthz", headers={"host": ours}).status_code == 200, ours
    for other in ("192.168.1.8:8000", "8.8.8.8", "[fe80::2]", "evil.example", "desktop.evil.example"):
        answer = client.get("/healthz", headers={"host": other})
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "foreign_host"), other
        assert "WORKBENCH_HOSTS" in answer.json()["error"]["message"]


def test_this_machine_s_own_addresses_are_known() -> None:
    assert "127.0.0.1" in own_addresses()


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "192.168.1.7"])
def test_a_proxy_s_name_is_let_in_where_it_is_named(enter: Open, address: str) -> None:
    client = enter(host=address, hosts="Bench.Example.org, 10.0.0.9", token=LONG)
    client.headers["authorization"] = f"Bearer {LONG}"

    for named in ("bench.example.org", "BENCH.example.org:443", "10.0.0.9:8000"):
        assert client.get("/healthz", headers={"host": named}).status_code == 200, named
    own = {"host": "bench.example.org", "origin": "https://bench.example.org"}
    assert client.post("/v1/workbench/mix", json={}, headers=own).json()["error"]["code"] == "bad_request"
    for other in ("example.org", "a.bench.example.org", "bench.example.org.evil.example", "10.0.0.10"):
        assert client.get("/healthz", headers={"host": other}).status_code == 403, other
    assert "https://bench.example.org" in client.get("/healthz").headers["content-security-policy"]


def test_a_named_host_needs_a_long_token_as_an_address_does(enter: Open) -> None:
    for token in ("", "s3cret"):
        with pytest.raises(UnsafeAddressError, match="WORKBENCH_HOSTS"):
            enter(hosts="bench.example.org", token=token)
    require_safe_address(Settings(hosts="localhost,127.0.0.1,::1"))


@pytest.mark.parametrize(
    "hosts", ["https://a.example", "a.example:443", "*", "*.example", "a/b", "[::1]", "a b", "-a", "ä.example"]
)
def test_a_named_host_has_no_scheme_port_or_pattern(hosts: str) -> None:
    with pytest.raises(ValidationError, match="without a scheme, port"):
        Settings(hosts=hosts)


def test_a_body_that_is_too_large_is_refused(enter: Open) -> None:
    large = {"model": "both", "prompt": "a" * MAX_BODY_BYTES}

    assert enter().post("/v1/completions", json=large).status_code == 413


def test_a_body_that_hides_its_length_is_refused_too(enter: Open) -> None:
    parts = (b"a" * 65_536 for _ in range(MAX_BODY_BYTES // 65_536 + 2))

    response = enter().post("/v1/completions", content=parts, headers={"content-type": "application/json"})

    assert (response.status_code, response.json()["error"]["code"]) == (413, "too_large")


@pytest.mark.parametrize(
    "many",
    [
        {"experts": [{"id": str(number)} for number in range(MAX_NAMED + 1)]},
        {"experts": [{"id": "both/law", "parts": ["code"] * (MAX_NAMED + 1)}]},
        {"active": ["both/law"] * (MAX_NAMED + 1)},
        {"parts": {str(number): [] for number in range(MAX_NAMED + 1)}},
        {"parts": {"both/law": ["code"] * (MAX_NAMED + 1)}},
    ],
)
def test_no_more_is_named_than_can_take_part(enter: Open, many: dict[str, Any]) -> None:
    answer = enter().post("/v1/completions", json={"model": "both", "prompt": "x", **many})
    assert answer.status_code == 400
    assert f"at most {MAX_NAMED} items" in answer.json()["error"]["message"]


def test_the_browser_is_ordered_to_load_nothing_from_elsewhere(enter: Open) -> None:
    client = enter(studio_port=8777)
    for path, source in (("/healthz", "'none'"), ("/docs", "'self'"), ("/play/", "'self'")):
        policy = client.get(path).headers["content-security-policy"]
        assert policy.startswith(f"default-src {source}")
        assert "frame-ancestors 'self' http://127.0.0.1:8777" in policy


def test_unfinished_bodies_together_hold_a_bounded_number_of_bytes() -> None:
    async def half() -> Message:
        return {"type": "http.request", "body": b"x" * 60, "more_body": True}

    async def last() -> Message:
        return {"type": "http.request", "body": b"x" * 10, "more_body": False}

    async def receive_several() -> None:
        bodies = Bodies(100)
        with bodies.limit(half, 1000) as first:
            await first()
            with bodies.limit(half, 1000) as second, pytest.raises(HTTPException) as refused:
                await second()
            assert refused.value.status_code == 503
        with bodies.limit(half, 1000) as third, bodies.limit(last, 1000) as complete:
            await third()
            for _ in range(20):
                await complete()

    asyncio.run(receive_several())
