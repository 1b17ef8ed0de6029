"""The matrix of roles: each route of the API lets in exactly the users whose role it needs; none is without a role."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from engine.plugins import BadPluginError
from tests.ui.api.test_routes_are_guarded import routes_of
from ui.addresses import USER_HEADER
from ui.api import route_roles
from ui.api.app import create_app
from ui.api.route_roles import ROLES, role_of
from ui.client import Client
from ui.errors import ServerRefusedError
from workbench.access.actor import Actor, Role, acting_as
from workbench.access.users import add_user, revoke_user, user_id_of
from workbench.errors import RegistryUnavailableError
from workbench.registry.database import transaction
from workbench.settings import Settings

OWNERS = "a token with a good many characters"
AUDIT = "/v1/workbench/audit"
NOT_ROUTES = {"GET /", "GET /docs/assets"}  # of the playground, and of static files


@pytest.fixture
def settings(mixed: Path) -> Settings:
    return Settings(home=mixed, token=OWNERS)


@pytest.fixture
def api(settings: Settings, host: Any) -> Iterator[TestClient]:
    app = create_app(settings, host, playground=False)
    with TestClient(app, base_url="http://127.0.0.1:8000", raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def tokens(settings: Settings) -> dict[Role, str]:
    """A user of each role, called by it."""
    with transaction(settings) as session:
        return {role: add_user(session, role.title, role.title).token for role in Role}


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def is_forbidden(answer: Any) -> bool:
    return answer.status_code == 403 and answer.json()["error"]["code"] == "forbidden"


def test_every_route_has_a_role_and_no_other_has(api: TestClient) -> None:
    table = {f"{method} {path}" for method, path in routes_of(api.app.routes, parameter="") if method != "HEAD"}  # type: ignore[attr-defined]
    table = {one.removesuffix("/x") if one.startswith("GET /docs/assets") else one for one in table}
    assert sorted(table - ROLES.keys()) == [], "Give each of these a role in ui/api/route_roles.py."
    assert sorted(ROLES.keys() - table - NOT_ROUTES) == []
    assert set(ROLES.values()) == set(Role)


def test_a_route_without_a_role_is_for_admins() -> None:
    assert role_of("GET", "/v1/workbench/new") is role_of("POST", "/v1/models") is Role.ADMIN
    assert role_of("HEAD", "/openapi.json") is Role.VIEWER


def test_each_route_refuses_exactly_the_roles_below_its_own(api: TestClient, tokens: dict[Role, str]) -> None:
    wrong = []
    for route, needed in ROLES.items():
        method, path = route.split(" ")
        for role, token in tokens.items():
            filled = path.replace("{name:path}", "x").replace("{id}", "x").replace("{job_id}", "x")
            filled = filled.replace("{cluster:path}", "x")
            body = {} if method in ("GET", "DELETE") else {"json": {}}
            answer = api.request(method, filled, headers=bearer(token), follow_redirects=False, **body)  # type: ignore[arg-type]
            if is_forbidden(answer) is not (role < needed) or answer.status_code in (401, 500):
                wrong.append((route, role.title, answer.status_code))
    assert wrong == []


def test_a_viewer_generates_and_votes_and_changes_nothing(api: TestClient, tokens: dict[Role, str]) -> None:
    api.headers.update(bearer(tokens[Role.VIEWER]))
    body = {"model": "both", "prompt": "def", "max_tokens": 2, "return_token_ids": True}
    answers = [api.post("/v1/completions", json=body).json() for _ in range(2)]
    stored = api.post("/v1/workbench/comparisons", json={"prompt": "def", "answers": answers})
    assert stored.status_code == 201, stored.text
    vote = api.post(f"/v1/workbench/comparisons/{stored.json()['id']}/vote", json={"choice": "a"})
    assert vote.status_code == 200
    refused = api.patch("/v1/workbench/mixtures/both", json={"active": ["both/law"]})
    assert is_forbidden(refused)
    assert "needs the role editor, but viewer has the role viewer" in refused.json()["error"]["message"]
    assert is_forbidden(api.put("/v1/workbench/aliases/law@production", json={"model": "both"}))
    assert api.get("/v1/workbench/aliases").json()["data"] == []


def test_admins_read_who_switched_and_deleted_what(api: TestClient, tokens: dict[Role, str]) -> None:
    editor, admin = bearer(tokens[Role.EDITOR]), bearer(tokens[Role.ADMIN])
    submitted = api.post("/v1/workbench/jobs", json={"spec": {"kind": "selfcheck"}}, headers=editor)
    assert submitted.status_code == 202, submitted.text
    api.patch("/v1/workbench/mixtures/both", json={"active": ["both/law"]}, headers=editor)
    api.delete("/v1/workbench/mixtures/both", headers=admin)
    api.put("/v1/workbench/aliases/law@production", json={"model": "both/law"}, headers=bearer(OWNERS))
    log = api.get(AUDIT, params={"limit": 4}, headers=admin).json()["data"]
    assert [(one["user"], one["action"], one["kind"], one["name"]) for one in log] == [
        ("owner", "add", "alias", "law@production"),
        ("admin", "delete", "mixture", "both"),
        ("editor", "change", "mixture", "both"),
        ("editor", "submit", "selfcheck", submitted.json()["title"]),
    ]
    assert log[2]["details"] == "both/code: active"
    of_editor = api.get(AUDIT, params={"user": "editor", "action": "submit"}, headers=admin).json()["data"]
    assert [one["kind"] for one in of_editor] == ["selfcheck"]


def test_a_revoked_user_is_out_at_once(api: TestClient, tokens: dict[Role, str], settings: Settings) -> None:
    header = bearer(tokens[Role.ADMIN])
    assert api.get("/v1/models", headers=header).status_code == 200
    with transaction(settings) as session:
        revoke_user(session, "admin")
    assert api.get("/v1/models", headers=header).json()["error"]["code"] == "invalid_api_key"
    assert api.get("/v1/models", headers=bearer(tokens[Role.VIEWER])).status_code == 200


def passed_on(api: TestClient, request: httpx.Request) -> httpx.Response:
    """The response of the server to a request of our own client."""
    answer = api.request(request.method, str(request.url), content=request.content, headers=request.headers)
    return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)


def test_the_studio_acts_for_its_user_and_no_user_for_another(
    api: TestClient, tokens: dict[Role, str], settings: Settings
) -> None:
    with transaction(settings) as session:
        viewer, admin = user_id_of(session, "viewer"), user_id_of(session, "admin")
    change = {"model": "both"}
    alias = "/v1/workbench/aliases/law@production"
    assert is_forbidden(api.put(alias, json=change, headers=bearer(OWNERS) | {USER_HEADER: viewer}))
    assert api.put(alias, json=change, headers=bearer(OWNERS) | {USER_HEADER: admin}).status_code == 200
    assert api.get("/v1/models", headers=bearer(OWNERS) | {USER_HEADER: "unknown"}).status_code == 401
    assert is_forbidden(api.put(alias, json=change, headers=bearer(tokens[Role.VIEWER]) | {USER_HEADER: admin}))
    with Client(settings, transport=httpx.MockTransport(partial(passed_on, api))) as client:
        with (
            acting_as(Actor("viewer", Role.VIEWER, viewer)),
            pytest.raises(ServerRefusedError, match="the role editor"),
        ):
            client.estimate_prior(name="mine", mixture="both", domain="law")
        with acting_as(Actor("gone", Role.VIEWER, "unknown")), pytest.raises(ServerRefusedError, match="token"):
            client.models()


def test_a_registry_that_does_not_respond_lets_no_user_in(
    api: TestClient, tokens: dict[Role, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise RegistryUnavailableError("The registry does not respond.", "Try again in a moment.")

    monkeypatch.setattr("ui.serving.login.reading", away)
    answer = api.get("/v1/models", headers=bearer(tokens[Role.ADMIN]))
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "registry_unavailable")
    assert api.get("/v1/models", headers=bearer("x")).status_code == 401


def test_a_question_cannot_take_the_path_of_another_route(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("workbench.questions.question.known_questions", lambda: {"jobs": object})
        with pytest.raises(BadPluginError, match="POST /v1/workbench/jobs"):
            importlib.reload(route_roles)
    importlib.reload(route_roles)
    assert route_roles.role_of("POST", "/v1/workbench/jobs") is not Role.VIEWER
