"""Deny by default: of every route that the API and the playground have, none answers but the login."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from ui.api.app import create_app
from ui.serving.login import LOGIN_PATH
from workbench.settings import Settings

TOKEN = "a token with a good many characters"
WRITING = {"POST", "PUT", "PATCH", "DELETE"}
UPLOADS = "/play/gradio_api/upload"
Route = tuple[str, str]  # method and path; WEBSOCKET for a socket


def routes_of(routes: Any, prefix: str = "", parameter: str = "x") -> Iterator[Route]:
    """Every route of a table with the tables inside it, each parameter filled in; by "" they stay as they are."""
    for route in routes:
        path = prefix + re.sub(r"{[^}]*}", lambda match: parameter or match[0], getattr(route, "path", "") or "")
        inner = getattr(route, "original_router", None) or getattr(route, "app", None)
        if getattr(route, "methods", None):
            yield from ((method, path) for method in sorted(route.methods))
        elif hasattr(inner, "routes"):
            yield from routes_of(inner.routes, path, parameter)
        elif type(route).__name__.endswith("WebSocketRoute"):
            yield "WEBSOCKET", path
        else:  # static files
            yield "GET", f"{path}/x"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    """A visitor of a server with a token and the playground; nothing is let in beneath the guard."""
    app = create_app(Settings(home=tmp_path_factory.mktemp("home"), token=TOKEN))
    return TestClient(app, base_url="http://127.0.0.1:8000", raise_server_exceptions=False, follow_redirects=False)


@pytest.fixture(scope="module")
def routes(client: TestClient) -> list[Route]:
    return sorted(set(routes_of(client.app.routes)))  # type: ignore[attr-defined]


def test_the_tables_are_read_to_their_ends(routes: list[Route]) -> None:
    paths = {path for _, path in routes}
    assert {"/v1/models", "/v1/completions", "/docs", "/docs/assets/x", "/play/", "/healthz"} <= paths
    assert {UPLOADS, "/play/gradio_api/queue/join", "/play/gradio_api/file=x", "/play/static/x"} <= paths
    assert len(routes) > 100


def test_without_the_token_no_route_answers(client: TestClient, routes: list[Route]) -> None:
    open_routes = []
    for method, path in routes:
        if method == "WEBSOCKET":
            with pytest.raises(WebSocketDisconnect), client.websocket_connect(path):
                open_routes.append((method, path))
            continue
        for sent in (method, "OPTIONS", "TRACE"):
            answer = client.request(sent, path)
            if answer.status_code != 401 or (sent != "HEAD" and '"invalid_api_key"' not in answer.text):
                open_routes.append((sent, path))
    assert open_routes == []
    assert client.get(LOGIN_PATH).status_code == 401  # with a form
    assert "<form" in client.get(LOGIN_PATH).text


def test_with_the_token_no_route_takes_a_body_of_another_type(client: TestClient, routes: list[Route]) -> None:
    """What a form or a script of another site may send without asking the browser is not even read."""
    known = {"authorization": f"Bearer {TOKEN}"}
    taken = []
    for method, path in (route for route in routes if route[0] in WRITING):
        for form in ("text/plain", "application/x-www-form-urlencoded", "application/xml", ""):
            answer = client.request(method, path, content=b'{"a": 1}', headers={**known, "content-type": form})
            if (answer.status_code, answer.json()["error"]["code"]) != (415, "unsupported_media_type"):
                taken.append((method, path, form))
    assert taken == []


def test_every_answer_says_what_a_browser_may_do_with_it(client: TestClient, routes: list[Route]) -> None:
    known = {"authorization": f"Bearer {TOKEN}"}
    for path in (
        "/v1/models",
        "/docs",
        "/docs/assets/swagger-ui.css",
        "/play/",
        "/play/config",
        "/nothing",
        LOGIN_PATH,
    ):
        for headers in ({}, known):
            answer = client.get(path, headers=headers)
            assert answer.headers["x-content-type-options"] == "nosniff", path
            assert answer.headers["referrer-policy"] == "same-origin", path
            assert "frame-ancestors 'self'" in answer.headers["content-security-policy"], path


def test_only_the_playground_may_compile_text_and_an_answer_may_load_nothing(client: TestClient) -> None:
    def policy(path: str) -> str:
        return str(client.get(path, headers={"authorization": f"Bearer {TOKEN}"}).headers["content-security-policy"])

    assert "'unsafe-eval'" in policy("/play/")
    assert "script-src 'self' 'nonce-" in policy("/play/")
    assert "'unsafe-eval'" not in policy("/docs")
    assert policy("/docs").startswith("default-src 'self'; script-src 'self'")
    for path in ("/v1/models", "/openapi.json", "/healthz", "/", LOGIN_PATH):
        assert policy(path).startswith("default-src 'none'"), path
    assert not re.search(r"https?://(?!127\.0\.0\.1:|localhost:)", policy("/play/"))
