"""Nobody gets in by default: by another name, from another page, without the token, or with too much."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from ui.addresses import require_safe_address
from ui.api.app import create_app
from ui.api.security import MAX_BODY_BYTES
from ui.errors import UnsafeAddress
from workbench.settings import Settings

Open = Callable[..., TestClient]


@pytest.fixture
def enter(mixed: Path, host: Any) -> Open:
    """A client of a server with these settings."""

    def enter(**changes: Any) -> TestClient:
        app = create_app(Settings(home=mixed, **changes), host, playground=False)
        return TestClient(app, base_url="http://127.0.0.1:8000")

    return enter


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
    assert client.get("/healthz", headers={"authorization": "Basic ???"}).status_code == 401


@pytest.mark.parametrize("address", ["0.0.0.0", "192.168.1.7", "::", "example.org"])
def test_another_address_without_a_token_is_refused(enter: Open, address: str) -> None:
    with pytest.raises(UnsafeAddress, match="WORKBENCH_TOKEN"):
        enter(host=address)
    require_safe_address(Settings(host=address, token="s3cret"))


def test_on_every_interface_an_address_is_ours_and_a_name_is_not(enter: Open) -> None:
    client = enter(host="0.0.0.0", token="s3cret")
    client.headers["authorization"] = "Bearer s3cret"

    assert client.get("/healthz", headers={"host": "192.168.1.7:8000"}).status_code == 200
    assert client.get("/healthz", headers={"host": "evil.example"}).status_code == 403


def test_a_body_that_is_too_large_is_refused(enter: Open) -> None:
    large = {"model": "both", "prompt": "a" * MAX_BODY_BYTES}

    assert enter().post("/v1/completions", json=large).status_code == 413


def test_a_body_that_hides_its_length_is_refused_too(enter: Open) -> None:
    parts = (b"a" * 65_536 for _ in range(MAX_BODY_BYTES // 65_536 + 2))

    response = enter().post("/v1/completions", content=parts, headers={"content-type": "application/json"})

    assert (response.status_code, response.json()["error"]["code"]) == (413, "too_large")


def test_the_browser_is_told_to_load_nothing_from_elsewhere(enter: Open) -> None:
    policy = enter(studio_port=8777).get("/healthz").headers["content-security-policy"]

    assert "default-src 'self'" in policy
    assert "frame-ancestors 'self' http://127.0.0.1:8777" in policy
