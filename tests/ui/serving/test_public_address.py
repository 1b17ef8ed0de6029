"""The address of a proxy: it needs a token, is a name of the servers, and is what links and commands name."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from ui.addresses import playground_address, playground_beside, require_safe_address
from ui.errors import UnsafeAddressError
from ui.present.model_use import completion_line, openai_lines
from ui.serving import studio_server, up
from ui.serving.browser import page_to_open
from ui.serving.login import login_link
from ui.serving.security import Guard, api_rules, studio_rules
from workbench.settings import Settings, get_settings

URL = "https://bench.example.org:8443"
LONG = "a token with a good many characters"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home", public_url=URL, token=LONG, api_port=8000, studio_port=8501)


@pytest.mark.parametrize("url", [URL, "https://192.0.2.7", "https://[2001:db8::7]:8443", "https://localhost:8443"])
@pytest.mark.parametrize("token", ["", "s3cret"])
def test_a_public_address_needs_a_long_token_whatever_its_name(url: str, token: str) -> None:
    with pytest.raises(UnsafeAddressError, match="WORKBENCH_PUBLIC_URL"):
        require_safe_address(Settings(public_url=url, token=token))
    require_safe_address(Settings(public_url=url, token=LONG))


def test_a_studio_without_an_api_is_refused_as_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(studio_server, "_serve", lambda _: pytest.fail("it must not serve"))
    monkeypatch.setenv("WORKBENCH_PUBLIC_URL", URL)
    get_settings.cache_clear()
    assert studio_server.main() == 2
    assert "WORKBENCH_TOKEN is not set" in capsys.readouterr().err


@pytest.mark.parametrize(
    "url",
    [
        "bench.example.org",
        "http://bench.example.org",
        "https://",
        "https://*.org",
        "https://me@bench.example.org",
        "https://bench.example.org:99999",
        "https://bench.example.org:",
        "https://[::1",
        f"{URL}/",
        f"{URL}/bench",
        f"{URL}?a",
    ],
)
def test_it_is_one_place_with_tls(url: str) -> None:
    with pytest.raises(ValidationError, match="must be https://NAME"):
        Settings(public_url=url)


def test_both_servers_answer_under_its_name_and_no_other(settings: Settings) -> None:
    for rules in (api_rules(settings), studio_rules(settings)):
        guarded = Guard(PlainTextResponse("in"), settings, rules)
        client = TestClient(guarded, headers={"authorization": f"Bearer {LONG}"})
        for ours in ("bench.example.org:8443", "BENCH.example.org", "127.0.0.1"):
            assert client.get("/", headers={"host": ours}).text == "in"
        for other in ("example.org", "bench.example.org.evil.example"):
            assert client.get("/", headers={"host": other}).status_code == 403
        own = {"host": "bench.example.org:8443", "origin": URL}
        assert client.post("/", headers=own).text == "in"
        assert client.post("/", headers={**own, "origin": "https://bench.example.org"}).status_code == 403
        assert "bench.example.org" not in client.get("/").headers["content-security-policy"]  # its own pages alone


def test_links_and_commands_name_it(settings: Settings) -> None:
    assert login_link(settings).startswith(f"{URL}/login?link=")
    assert playground_address(settings) == f"{URL}/play/"
    assert f'base_url="{URL}/v1"' in openai_lines("m", settings)
    assert f"curl {URL}/v1/completions" in completion_line("m", settings)
    greeting = up.greeting(settings)
    assert all(
        words in greeting for words in (f"studio      {URL}\n", f"{URL}/play/", f"{URL}/v1", "A proxy must serve")
    )
    assert f"{URL}/login?link=" in up.ready_words(settings)
    opened = Path(page_to_open(settings).removeprefix("file://")).read_text(encoding="utf-8")
    assert "http://127.0.0.1:8501/login?link=" in opened  # a browser of this machine needs no proxy


@pytest.mark.parametrize(
    ("studio", "playground"),
    [
        ("bench.example.org:8443", f"{URL}/play/"),
        ("BENCH.example.org:8443", f"{URL}/play/"),
        ("127.0.0.1:8501", "http://127.0.0.1:8000/play/"),  # through an SSH tunnel
        ("localhost:8501", "http://localhost:8000/play/"),
        ("bench.example.org", "http://127.0.0.1:8000/play/"),  # at another port
    ],
)
def test_the_studio_leads_to_the_playground_beside_it(settings: Settings, studio: str, playground: str) -> None:
    assert playground_beside(settings, studio) == playground


def test_the_port_of_https_may_be_left_out(settings: Settings) -> None:
    named = settings.model_copy(update={"public_url": "https://bench.example.org:443"})
    assert playground_beside(named, "bench.example.org") == "https://bench.example.org:443/play/"
    assert playground_beside(Settings(api_port=8000), "localhost:8501") == "http://localhost:8000/play/"
