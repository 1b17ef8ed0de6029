"""The help is answered from its folder only, behind the studio's guard."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from ui.serving.help_site import help_routes
from ui.serving.security import Guard, studio_rules
from workbench.settings import Settings

SECRET = "a text outside of the help"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A tiny site with a link out of it, and a text next to it."""
    folder = tmp_path / "site"
    (folder / "how_to").mkdir(parents=True)
    (folder / "index.html").write_text("<h1>Help</h1>", encoding="utf-8")
    (folder / "404.html").write_text("<h1>Not found</h1>", encoding="utf-8")
    (folder / "how_to" / "mode.html").write_text("<h1>MoDE</h1>", encoding="utf-8")
    (tmp_path / "secret.txt").write_text(SECRET, encoding="utf-8")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "above").symlink_to(tmp_path)
    return folder


def browser(folder: Path, **changes: bool) -> TestClient:
    settings = Settings(home=folder.parent / "home", **changes)  # type: ignore[arg-type]
    guard = Guard(Starlette(routes=help_routes(folder)), settings, studio_rules(settings))
    return TestClient(guard, base_url="http://127.0.0.1:8501")


def test_pages_are_answered_with_the_headers_of_the_studio(site: Path) -> None:
    client = browser(site, no_auth=True)
    start = client.get("/help")  # redirected
    assert (start.text, str(start.url)) == ("<h1>Help</h1>", "http://127.0.0.1:8501/help/")
    assert client.get("/help/how_to/mode.html").text == "<h1>MoDE</h1>"
    for answer in (start, client.get("/help/gone.html")):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "eval" not in policy
        assert "https:" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
    for path in ("/help/gone.html", "/help/how_to/", "/help/how_to"):
        assert (client.get(path).status_code, client.get(path).text) == (404, "<h1>Not found</h1>")
    assert client.post("/help/", json={}, headers={"origin": "http://127.0.0.1:8501"}).status_code == 405


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "%2e%2e/secret.txt",
        "..%2fsecret.txt",
        "how_to/%2e%2e/%2e%2e/secret.txt",
        "..%5csecret.txt",
        "link.txt",
        "above/secret.txt",
        "{folder}/secret.txt",
        "%2f{folder}/secret.txt",
        "link.txt%00.html",
        "x" * 5000,
    ],
)
def test_no_path_leads_out_of_the_help(site: Path, path: str) -> None:
    answer = browser(site, no_auth=True).get("/help/" + path.format(folder=site.parent))
    assert answer.status_code == 404
    assert SECRET not in answer.text


def test_without_a_login_nothing_of_it_is_seen(site: Path) -> None:
    client = browser(site, no_auth=False)
    for path in ("/help/", "/help", "/help/gone.html"):
        assert client.get(path, follow_redirects=False).json()["error"]["code"] == "invalid_api_key"
        page = client.get(path, headers={"accept": "text/html"}, follow_redirects=False)
        assert (page.status_code, "workbench login-link" in page.text) == (401, True)
    assert client.get("/help/", headers={"host": "evil.example"}).status_code == 403


def test_a_help_that_is_not_built_says_how_to_build_it(tmp_path: Path) -> None:
    client = browser(tmp_path / "site", no_auth=True)
    answer = client.get("/help/models.html")
    assert (answer.status_code, "make docs" in answer.text) == (404, True)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text("built", encoding="utf-8")
    assert client.get("/help/").text == "built"
