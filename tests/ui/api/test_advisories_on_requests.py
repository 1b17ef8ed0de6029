"""Vulnerabilities published for similar programs, by a request of another page or program: none applies here.

Each test bears the number of the advisory. Those on files are in `tests/journeys/test_advisories_on_files.py`, the two
on Streamlit's routes in `tests/ui/serving/test_studio_guard.py`.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from ui.api.app import create_app
from ui.serving.login import Login
from ui.serving.security import MAX_BODY_BYTES
from workbench.registry import experts
from workbench.registry.database import transaction
from workbench.settings import Settings

Open = Callable[..., TestClient]
TOKEN = "a token with a good many characters"
ASK = {"model": "both", "prompt": "the sea", "max_tokens": 2}


@pytest.fixture(scope="module")
def playground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """With the playground's routes."""
    app = create_app(Settings(home=tmp_path_factory.mktemp("home")))
    with TestClient(app, base_url="http://127.0.0.1:8000", raise_server_exceptions=False) as client:
        yield client


def test_cve_2023_48022(enter: Open) -> None:
    """Ray: whoever reached the port could run any command as a job. A job is of a known kind, and needs the token."""
    client = enter(token=TOKEN)
    command = {"entrypoint": "touch ran"}
    assert client.post("/v1/workbench/jobs", json={"spec": {"kind": "make-seed", "name": "x"}}).status_code == 401
    known = {"authorization": f"Bearer {TOKEN}"}
    for body in (command, {"spec": command}, {"spec": {"kind": "shell", **command}}):
        assert client.post("/v1/workbench/jobs", json=body, headers=known).status_code in (400, 422)


def test_cve_2024_28224(enter: Open) -> None:
    """Ollama: a page whose name was bound to 127.0.0.1 anew could ask everything. The Host must be our own."""
    for host in ("evil.example", "evil.example:8000", "127.0.0.1.evil.example"):
        answer = enter().get("/v1/models", headers={"host": host, "origin": f"http://{host}"})
        assert answer.json()["error"]["code"] == "foreign_host"


def test_cve_2024_47084(enter: Open, mixed: Path, playground: TestClient) -> None:
    """Gradio: a request with a cookie passed from any page of this machine. Origin and cookie are both checked."""
    settings = Settings(home=mixed, token=TOKEN)
    login = Login(settings)
    cookies = {"cookie": f"{login.cookie}={login.new_session()}"}
    client = enter(token=TOKEN)
    for origin in ("null", "http://localhost:9999", "http://127.0.0.1:1", "http://evil.example"):
        assert client.post("/v1/completions", json=ASK, headers={**cookies, "origin": origin}).status_code == 403
        for path in ("gradio_api/queue/join", "config", ""):
            assert playground.post(f"/play/{path}", json={}, headers={"origin": origin}).status_code == 403
    assert client.post("/v1/completions", json=ASK, headers=cookies).status_code == 403  # also without an Origin
    own = {**cookies, "origin": "http://127.0.0.1:8000"}
    answer = client.post("/v1/completions", json=ASK, headers=own)
    assert answer.status_code == 200
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("form", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_cve_2021_32677(enter: Open, form: str) -> None:
    """FastAPI: JSON was read from a body of a simple type, which any page may send. It is refused here."""
    body = json.dumps(ASK)
    client = enter()
    assert client.post("/v1/completions", content=body, headers={"content-type": "application/json"}).is_success
    answer = client.post("/v1/completions", content=body, headers={"content-type": form})
    assert answer.status_code in (400, 415, 422)
    assert "error" in answer.json()


def test_cve_2023_30798(enter: Open, playground: TestClient) -> None:
    """Starlette: a form of endless fields filled the memory. A body is cut at its bound, whatever it is."""
    field = b'--x\r\ncontent-disposition: form-data; name="a"\r\n\r\n\r\n'
    form = field * (MAX_BODY_BYTES // len(field) + 1) + b"--x--\r\n"
    headers = {"content-type": "multipart/form-data; boundary=x"}
    for client, path in ((enter(), "/v1/completions"), (playground, "/play/gradio_api/upload")):
        assert client.post(path, content=form, headers=headers).status_code == 413


@pytest.mark.parametrize("path", ["/etc/passwd", "../../../../etc/passwd", "..%2f..%2f..%2fetc/passwd", "//etc/passwd"])
def test_cve_2023_51449(playground: TestClient, path: str) -> None:
    """Gradio: its route for files answered with any file. The playground gives no file of this machine away."""
    for route in ("/play/gradio_api/file=", "/play/file=", "/play/gradio_api/file/", "/play/static/", "/play/assets/"):
        answer = playground.get(f"{route}{path}")
        assert answer.status_code in (403, 404, 405), route
        assert "root:" not in answer.text


def test_cve_2026_28416(playground: TestClient) -> None:
    """Gradio: a loaded app's `proxy_url` made the server ask any address. No app is loaded, and nothing is proxied."""
    for address in ("http://169.254.169.254/latest", "http://127.0.0.1:22", "https://evil.hf.space/x"):
        answer = playground.get(f"/play/gradio_api/proxy={address}")
        assert answer.status_code in (400, 403, 404)
    sources = [file.read_text(encoding="utf-8") for file in (Path(__file__).parents[3] / "ui").rglob("*.py")]
    calls = [ast.unparse(node.func) for source in sources for node in ast.walk(ast.parse(source)) if _is_call(node)]
    assert len(calls) > 1000
    assert not {"gr.load", "gradio.load", "gr.Interface.load"} & set(calls)


def _is_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call)


def test_cve_2024_12537(enter: Open) -> None:
    """Open WebUI: a route without login formatted code of any size. Behind the token no route is left open."""
    client = enter(token=TOKEN)
    for route in client.app.routes:  # type: ignore[attr-defined]
        for method in getattr(route, "methods", None) or ():
            path = route.path.replace("{name:path}", "x").replace("{job_id}", "x")
            assert client.request(method, path).status_code == 401, (method, path)


def test_cve_2026_44555(enter: Open) -> None:
    """Open WebUI: a model that was not allowed answered through another one that names it as its base.

    There are no rights of single models here, but experts that are switched off: a mixture does not bring one back.
    """
    client = enter()
    before = client.post("/v1/completions", json=ASK).json()["manifest"]
    assert [one["name"] for one in before["experts"]] == ["both/code", "both/law"]
    with transaction() as session:
        experts.set_enabled(session, ["both/code"], False)
    for changes in ({"model": "both/code"}, {"model": "both", "experts": {"both/code": True}}):
        answer = client.post("/v1/completions", json={**ASK, **changes})
        assert answer.status_code in (400, 404, 409), changes
    answer = client.post("/v1/completions", json=ASK)
    assert [one["name"] for one in answer.json()["manifest"]["experts"]] == ["both/law"]


def test_cve_2023_6568(enter: Open) -> None:
    """MLflow: the content type of a request came back as a page's markup. Errors are JSON, and are never sniffed."""
    markup = "<script>alert(1)</script>"
    for send in ({"headers": {"content-type": markup}, "content": b"x"}, {"json": {"model": markup, "prompt": "a"}}):
        answer = enter().post("/v1/completions", **send)  # type: ignore[arg-type]
        assert answer.status_code in (400, 404, 415, 422)
        assert answer.headers["content-type"].startswith("application/json")
        assert answer.headers["x-content-type-options"] == "nosniff"
    answer = enter().get(f"/v1/models/{markup}")
    assert answer.headers["content-type"].startswith("application/json")


@pytest.mark.parametrize("schema", [{"pattern": "("}, {"type": "evil"}, {"pattern": "(a+)+$"}, "x", None])
def test_cve_2025_48944(enter: Open, schema: Any) -> None:
    """vLLM: a tool's schema with a wrong pattern or type ended the server. Tools are refused by name."""
    tool = {"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": schema}}}}
    client = enter()
    chat = {"model": "both", "messages": [{"role": "user", "content": "hello"}], "tools": [tool]}
    answer = client.post("/v1/chat/completions", json=chat)
    assert answer.status_code == 400
    assert "tools" in answer.json()["error"]["message"]
    assert client.get("/healthz").status_code == 200
