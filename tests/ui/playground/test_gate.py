"""Of Gradio's server the page gets what is listed: no other route, parameter, field or header."""

from __future__ import annotations

import inspect
import itertools
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.ui.api.test_routes_are_guarded import routes_of
from ui.api.app import create_app
from ui.playground.gate import ENDPOINTS, OF_GRADIO, ROUTES
from workbench.settings import Settings

TOKEN = "a token with a good many characters"
# Of the Gradio that was read: each of its routes, with its parameters in the query. A new one must be looked at.
SERVED = """
    / deep_link page
    /config/? deep_link page
    /static/{path:path}
    /assets/{path:path}
    /theme.css
    /gradio_api/info/? page
    /gradio_api/startup-events
    /gradio_api/heartbeat/{session_hash}
    /gradio_api/queue/join
    /gradio_api/queue/data session_hash
    /gradio_api/cancel
    /gradio_api/reset
    /gradio_api/call/{api_name}/?
    /gradio_api/call/{api_name}/{event_id}
    /gradio_api/call/v2/{api_name}/?
    /gradio_api/call/v2/{api_name}/{event_id}
"""
REFUSED = """
    /openapi.json
    /login/?
    /logout all_session
    /svelte/{path:path}
    /favicon.ico
    /robots.txt
    /manifest.json
    /pwa_icon size
    /pwa_icon/{size}
    /monitoring
    /monitoring/summary
    /monitoring/{key}
    /gradio_api/deep_link session_hash
    /gradio_api/user/?
    /gradio_api/login_check/?
    /gradio_api/token/?
    /gradio_api/app_id/?
    /gradio_api/dev/reload
    /gradio_api/runs/?
    /gradio_api/openapi.json
    /gradio_api/custom_component/{id}/{environment}/{type}/{file_name}
    /gradio_api/proxy={url_path:path}
    /gradio_api/file={path_or_url:path}
    /gradio_api/file/{path:path}
    /gradio_api/stream/{event_id}
    /gradio_api/stream/{event_id}/close
    /gradio_api/stream/{session_hash}/{run}/{component_id}/playlist.m3u8
    /gradio_api/stream/{session_hash}/{run}/{component_id}/{segment_id}.{ext}
    /gradio_api/stream/{session_hash}/{run}/{component_id}/playlist-file
    /gradio_api/reset/
    /gradio_api/run/{api_name}/?
    /gradio_api/api/{api_name}/?
    /gradio_api/component_server/?
    /gradio_api/queue/status
    /gradio_api/upload_progress upload_id
    /gradio_api/upload upload_id
    /gradio_api/theme.css
    /gradio_api/process_recording
    /gradio_api/vibe-edit/?
    /gradio_api/undo-vibe-edit/?
    /gradio_api/vibe-code/?
    /gradio_api/vibe-starter-queries/?
"""
ODD = ("%00", "%2e%2e", "..%2f..%2fetc", "-1", "99999999999999999999", "%ff%fe", "[", "a" * 3000, "%0d%0ax:1", "null")


def listed(lines: str) -> dict[str, set[str]]:
    """Paths, each with its parameters; one that ends with `/?` stands for two."""
    table = {path: set(names) for path, *names in (line.split() for line in lines.strip().splitlines())}
    return {each: names for path, names in table.items() for each in (path.removesuffix("?"), path.removesuffix("/?"))}


def parameters_of(dependant: Any) -> set[str]:
    """The parameters in the query that a route of FastAPI declares, with those of what it depends on."""
    own = {one.alias for one in dependant.query_params}
    return own.union(*map(parameters_of, dependant.dependencies))


def declared_in(routes: Any, prefix: str = "") -> Iterator[tuple[str, set[str]]]:
    """Each path of a table and of the tables inside it, with the parameters that it declares."""
    for route in routes:
        path = prefix + (getattr(route, "path", "") or "")
        inner = getattr(route, "original_router", None) or getattr(route, "app", None)
        if getattr(route, "methods", None):
            yield path, parameters_of(route.dependant) if hasattr(route, "dependant") else set()
        elif hasattr(inner, "routes"):
            yield from declared_in(inner.routes, path)
        else:
            yield f"{path} {type(route).__name__}", set()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """The owner, at a server with the playground, where no fault stays unseen."""
    app = create_app(Settings(home=tmp_path_factory.mktemp("home"), token=TOKEN))
    with TestClient(app, base_url="http://127.0.0.1:8000", follow_redirects=False) as client:
        client.headers["authorization"] = f"Bearer {TOKEN}"
        yield client


@pytest.fixture(scope="module")
def gradio(client: TestClient) -> Any:
    """The mounted server of Gradio."""
    return next(one.app for one in client.app.routes if getattr(one, "path", "") == "/play")  # type: ignore[attr-defined]


def test_each_route_and_parameter_of_gradio_is_on_a_list(gradio: Any) -> None:
    declared: dict[str, set[str]] = {}
    for path, names in declared_in(gradio.routes):
        declared[path] = declared.get(path, set()) | names
    assert declared == listed(SERVED) | listed(REFUSED)


def test_gradio_reads_no_other_parameter_by_its_name() -> None:
    import gradio.route_utils
    import gradio.routes

    sources = [inspect.getsource(module) for module in (gradio.routes, gradio.route_utils)]
    named = {name for source in sources for name in re.findall(r"query_params(?:\.get\(|\[)\s*\"(\w+)", source)}
    assert named == {"all_endpoints", "__sign"}


def test_only_the_listed_routes_are_served(client: TestClient, gradio: Any) -> None:
    answered = set()
    for method, path in sorted(set(routes_of(gradio.routes, parameter="generate"))):
        if "/heartbeat/" in path:  # has no end
            continue
        answer = client.request(method, f"/play{path}", content=b"[]", headers={"content-type": "application/json"})
        if answer.status_code not in (404, 405):
            answered.add(path)
    served = {re.sub(r"{[^}]*}", "generate", path) for path in listed(SERVED)}
    assert answered <= served
    assert {"/", "/config", "/theme.css", "/gradio_api/info", "/gradio_api/queue/join"} <= answered


@pytest.mark.parametrize("name", OF_GRADIO)
def test_gradios_own_parameters_of_a_page_are_refused_by_name(client: TestClient, name: str) -> None:
    for path in ("/play/", "/play/config", "/play/gradio_api/info"):
        answer = client.get(path, params={name: "x"})
        assert (answer.status_code, name in answer.text) == (400, True)
    assert client.get("/play/", params={"prompt": "the sea", "seed": 3, "unknown": 1}).status_code == 200


def test_a_body_has_the_fields_of_gradios_own_clients_and_no_others(client: TestClient) -> None:
    for field in ("batched", "simple_format", "event_id", "oauth_token", "request", "x"):
        body = {"data": [], "fn_index": 0, "session_hash": "a", field: True}
        answer = client.post("/play/gradio_api/queue/join", json=body)
        assert (answer.status_code, field in answer.text) == (422, True)


@pytest.mark.parametrize(
    "header", ["x-forwarded-host", "x-forwarded-proto", "forwarded", "x-gradio-server", "x-real-ip"]
)
def test_no_header_writes_an_address_into_a_page(client: TestClient, header: str) -> None:
    for path in ("/play/", "/play/config", "/play/gradio_api/info", "/docs", "/login", "/openapi.json"):
        plain, sent = client.get(path), client.get(path, headers={header: "https://evil.example"})
        assert sent.status_code == plain.status_code
        assert "evil" not in sent.text + str(sent.headers)
        assert "https://127.0.0.1" not in sent.text


def test_scripts_of_the_page_carry_a_number_that_is_new_each_time(client: TestClient) -> None:
    numbers = set()
    for _ in range(2):
        answer = client.get("/play/", headers={"accept-encoding": "br"})
        (number,) = re.findall(r"script-src 'self' 'nonce-([\w-]{20,})' 'unsafe-eval';", str(answer.headers))
        inline = re.findall(r"<script(?![^>]*\bsrc=)[^>]*>", answer.text)
        assert len(inline) == 5
        assert all(f'nonce="{number}"' in one for one in inline)
        numbers.add(number)
    assert len(numbers) == 2


def test_odd_paths_and_parameters_are_refused_in_words(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    """As `/proxy=%00`, which was answered with a traceback."""
    paths = [*listed(SERVED), *listed(REFUSED)]
    for path, odd in itertools.product(paths, ODD):
        address = f"/play{re.sub(r'{[^}]*}', odd, path)}"
        if "/heartbeat/" in path:  # has no end
            continue
        for method in ("GET", "POST"):
            answer = client.request(method, address, params=None if "{" in path else f"{odd}={odd}&session_hash={odd}")
            assert answer.status_code < 500, (method, address)
    assert [one for one in caplog.records if one.exc_info or one.levelno >= logging.ERROR] == []


BODIES: list[Any] = [
    *(
        [],
        None,
        1,
        "x",
        {},
        {"data": 1},
        {"data": None, "session_hash": "a"},
        {"session_hash": 1, "fn_index": 1, "data": []},
    ),
    *({"data": [], "fn_index": number, "session_hash": "a"} for number in (-1, 9999, 1.5, True, "1", None, [], 10**40)),
    *({"data": [], "fn_index": 1, "session_hash": text} for text in ("", "\0", "a" * 65, "../x", "ä", None, {})),
    *(
        {"data": data, "fn_index": 1, "session_hash": "a"}
        for data in ([1], [{}] * 40, [[[]]], ["\ud800"], [float("nan")])
    ),
    *({"data": [], "fn_index": 1, "session_hash": "a", "trigger_id": one} for one in (-1, "x", [], 10**40)),
    *({"data": [], "fn_index": 1, "session_hash": "a", "event_data": one} for one in (1, "x", [], {"x": {}})),
    *({"data": [], "event_id": one, "fn_index": 1, "session_hash": "a"} for one in (None, 1, "\0", "x")),
    *({name: one} for name in ("model", "prompt", "seed", "x") for one in (None, [], {}, 1e400)),
]


def test_odd_bodies_are_refused_in_words(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    """As an unknown `fn_index`, which was answered with a traceback."""
    posts = ["queue/join", "cancel", "reset", *(f"call/{v}{name}" for name in (*ENDPOINTS, "x") for v in ("", "v2/"))]
    headers = {"content-type": "application/json"}
    for path, body in itertools.product(
        posts, [*map(json.dumps, BODIES), "", "{", "[" * 100_000, "\0", '{"data":[]}x']
    ):
        answer = client.post(f"/play/gradio_api/{path}", content=body.encode("utf-8", "replace"), headers=headers)
        assert answer.status_code < 500, (path, body[:200])
    assert [one for one in caplog.records if one.exc_info or one.levelno >= logging.ERROR] == []


def test_the_list_names_each_route_once() -> None:
    assert len({one.path for one in ROUTES}) == len(ROUTES)
