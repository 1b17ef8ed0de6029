"""A home folder has a random token unless one is set: only its owner reads it, and without it nobody gets in."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from starlette.testclient import TestClient
from starlette.types import ASGIApp

from tests.ui.serving.test_studio_guard import send_ok
from ui.addresses import require_safe_address, studio_address
from ui.cli.app import main
from ui.errors import BadUsageError, UnsafeAddressError
from ui.serving import up
from ui.serving.login import Login, login_link
from ui.serving.security import Guard, api_rules, studio_rules
from ui.serving.studio_server import studio_actor
from workbench.access.actor import NOBODY, THE_OWNER, Role
from workbench.access.home_token import access_token, ensure_token, needs_token, renew_token
from workbench.access.users import add_user, revoke_user, user_id_of
from workbench.errors import StorageError
from workbench.registry.database import transaction
from workbench.settings import Settings, get_settings


@pytest.fixture
def settings(home: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """As they are where nothing is set."""
    monkeypatch.delenv("WORKBENCH_NO_AUTH")
    get_settings.cache_clear()
    return get_settings()


def client(settings: Settings, app: ASGIApp = send_ok) -> TestClient:
    return TestClient(Guard(app, settings, api_rules(settings)), base_url="http://127.0.0.1:8000")


def status(client: TestClient, token: str) -> int:
    return client.get("/v1/models", headers={"authorization": f"Bearer {token}"}).status_code


def test_a_server_makes_a_token_of_its_own_and_requires_it(settings: Settings) -> None:
    assert access_token(settings) == ""
    server = client(settings)
    token = access_token(settings)
    assert len(token) >= 43
    assert (server.get("/v1/models").status_code, status(server, "x"), status(server, token)) == (401, 401, 200)
    assert client(settings) is not server
    assert access_token(settings) == token  # the next server has the same


def test_only_the_owner_reads_it(settings: Settings) -> None:
    ensure_token(settings)
    file = settings.root / "login" / "token"
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_servers_that_start_together_have_one_token(settings: Settings) -> None:
    together, tokens = threading.Barrier(8), []

    def start() -> None:
        together.wait()
        tokens.append(ensure_token(settings))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(tokens), len(set(tokens))) == (8, 1)


def test_a_new_token_ends_the_old_one_and_every_login_while_the_servers_run(settings: Settings) -> None:
    server, old = client(settings), access_token(settings)
    session = Login(settings).new_session()
    assert Login(settings).actor_of_session(session)
    new = renew_token(settings)
    assert (status(server, old), status(server, new)) == (401, 200)
    assert not Login(settings).actor_of_session(session)


@pytest.mark.parametrize("content", [None, b"", b"\n"])
def test_a_token_that_is_gone_lets_nobody_in(settings: Settings, content: bytes | None) -> None:
    server, file = client(settings), settings.root / "login" / "token"
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    assert [status(server, token) for token in ("", " ", "x")] == [401] * 3
    assert server.get("/v1/models", headers={"authorization": "Basic Og=="}).status_code == 401  # an empty password
    if content is not None:
        with pytest.raises(StorageError, match="cannot be read"):
            client(settings).get("/v1/models")


def test_a_token_that_was_set_comes_first(settings: Settings) -> None:
    with_token = settings.model_copy(update={"token": Settings(token="s3cret").token, "no_auth": True})
    assert (needs_token(with_token), access_token(with_token), ensure_token(with_token)) == (True, "s3cret", "s3cret")
    assert not (settings.root / "login").exists()


def test_without_auth_nothing_is_made_or_required(settings: Settings) -> None:
    open_to_all = up.without_auth(settings)
    assert client(open_to_all).get("/v1/models").status_code == 200
    assert (access_token(open_to_all), "login" in up.addresses(open_to_all)) == ("", False)
    assert not (settings.root / "login").exists()
    assert "No login is needed" in up.greeting(open_to_all)
    assert up.environment(open_to_all)["WORKBENCH_NO_AUTH"] == "1"
    assert up.environment(settings)["WORKBENCH_NO_AUTH"] == "0"


def test_without_auth_other_addresses_are_refused() -> None:
    for changes in ({"host": "0.0.0.0"}, {"hosts": "experts.example"}):
        with pytest.raises(UnsafeAddressError, match="WORKBENCH_TOKEN is not set"):
            require_safe_address(Settings(no_auth=True, **changes))  # type: ignore[arg-type]
    with pytest.raises(BadUsageError, match="WORKBENCH_TOKEN is set"):
        up.without_auth(Settings(token="s3cret"))


def test_another_address_needs_a_token_that_was_set_not_that_of_the_home(settings: Settings) -> None:
    ensure_token(settings)
    with pytest.raises(UnsafeAddressError, match="WORKBENCH_TOKEN"):
        require_safe_address(settings.model_copy(update={"host": "0.0.0.0"}))


def test_the_command_prints_the_token_and_makes_another(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["token"]) == 0
    first = capsys.readouterr().out.strip()
    assert first == access_token(settings)
    assert main(["token", "--new"]) == 0
    assert capsys.readouterr().out.strip() == access_token(settings) != first


def test_the_command_makes_no_token_where_none_is_needed_or_another_counts(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["token"]) == 2
    assert "WORKBENCH_NO_AUTH is set" in capsys.readouterr().err
    monkeypatch.setenv("WORKBENCH_TOKEN", "s3cret")
    get_settings.cache_clear()
    assert main(["token", "--new"]) == 2
    assert main(["token"]) == 0
    assert capsys.readouterr().out == "s3cret\n"
    assert not (home / "login").exists()


def test_a_link_logs_in_by_the_token_of_the_home(settings: Settings) -> None:
    server = client(settings)
    assert server.get(login_link(settings).removeprefix(studio_address(settings))).status_code == 200
    assert server.get("/v1/models").status_code == 200


def test_users_type_their_own_token_and_only_editors_upload(settings: Settings) -> None:
    with transaction() as session:
        tokens = {name: add_user(session, name, name).token for name in ("viewer", "editor")}
    own = {"origin": "http://127.0.0.1:8501"}
    for name, expected in (("viewer", 403), ("editor", 200)):
        browser = TestClient(Guard(send_ok, settings, studio_rules(settings)), base_url=own["origin"], headers=own)
        answer = browser.post("/login", data={"token": tokens[name]}, follow_redirects=False)
        assert (answer.status_code, tokens[name] in str(answer.headers)) == (303, False)
        assert browser.get("/").status_code == 200
        assert browser.put("/_stcore/upload_file/session/file").status_code == expected


def test_the_studio_knows_the_user_by_the_cookie_of_its_web_socket(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    login, who = Login(settings), studio_actor(settings)
    ensure_token(settings)
    with transaction() as session:
        add_user(session, "anna", "viewer")
        anna = user_id_of(session, "anna")

    def opened_with(**cookies: str) -> None:
        monkeypatch.setattr("streamlit.context", SimpleNamespace(headers={"Host": "127.0.0.1"}, cookies=cookies))

    opened_with()
    assert who() is NOBODY
    opened_with(**{login.cookie: login.new_session()})
    assert who() is THE_OWNER
    opened_with(**{login.cookie: login.new_session(anna)})
    assert (who().name, who().role) == ("anna", Role.VIEWER)
    with transaction() as session:
        revoke_user(session, "anna")
    assert who() is NOBODY
