"""Whatever stands in a path, a query or a header: the API answers in words, and never with a mistake of its own."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.ui.api.test_routes_are_guarded import routes_of
from ui.api.app import create_app
from workbench.settings import Settings

OWN = "http://127.0.0.1:8000"
ESCAPED = ("%00", "%ff%fe", "..%2f..%2fetc", "%0d%0ax", "%F0%9F%94%91")
ODD = ("[", "'", "-1", "null", "1e400", "9" * 40, "a" * 3000, *ESCAPED)
NAMES = ("limit", "offset", "search", "after", "days", "format", "domain", "kind", "state", "sort", "expert", "as_of")


@pytest.fixture
def client(mixed: Path, host: Any) -> TestClient:
    return TestClient(create_app(Settings(home=mixed, no_auth=True), host, playground=False), base_url=OWN)


def test_no_odd_value_is_a_mistake_of_the_server(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    for odd in ODD:
        for method, path in sorted(set(routes_of(client.app.routes, parameter=odd))):  # type: ignore[attr-defined]
            query = "&".join(f"{name}={odd}" for name in NAMES)
            answer = client.request(method, f"{path}?{query}", follow_redirects=False)
            assert answer.status_code < 500, (method, path)
    assert [one.getMessage() for one in caplog.records if one.exc_info or one.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("name", ["host", "origin", "authorization", "content-type", "x-workbench-user"])
def test_two_values_of_a_header_that_is_checked_are_refused(client: TestClient, name: str) -> None:
    value = {"host": "127.0.0.1:8000", "origin": OWN, "content-type": "application/json"}.get(name, "x")
    for other in (value, "evil.example"):
        answer = client.get("/healthz", headers=[(name, value), (name, other)])
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_request")
        assert f"one header “{name}”" in answer.json()["error"]["message"]
