"""workbench user and audit: users are added, listed, logged in and revoked; the log says who did it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ui.cli.app import main
from ui.serving.login import Login
from workbench.access.actor import OWNER, Role
from workbench.settings import Settings, get_settings


@pytest.fixture
def settings(home: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings of a workbench that requires a login."""
    monkeypatch.delenv("WORKBENCH_NO_AUTH")
    get_settings.cache_clear()
    return get_settings()


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command prints."""
    assert main(list(words)) == 0
    return capsys.readouterr().out


def role(settings: Settings, token: str) -> Role | None:
    actor = Login(settings).actor_of_token(token.encode())
    return actor and actor.role


def test_a_user_is_added_listed_and_revoked(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    anna = printed(capsys, "user", "add", "anna", "--role", "editor").splitlines()[-1]
    ben = json.loads(printed(capsys, "user", "add", "ben", "--json"))
    assert (role(settings, anna), role(settings, ben["token"]), ben["role"]) == (Role.EDITOR, Role.VIEWER, "viewer")
    assert main(["user", "add", "anna"]) == 2
    assert main(["user", "add", "eve", "--role", "root"]) == 2
    listed = printed(capsys, "user", "list")
    assert "editor" in listed
    assert anna not in listed + printed(capsys, "user", "list", "--json")
    assert printed(capsys, "user", "revoke", "anna") == "“anna” is revoked.\n"
    assert role(settings, anna) is None
    assert main(["user", "revoke", "nobody"]) == 2
    log = json.loads(printed(capsys, "audit", "list", "--json"))
    assert [(one["action"], one["kind"], one["name"]) for one in log] == [
        ("change", "user", "anna"),
        ("add", "user", "ben"),
        ("add", "user", "anna"),
    ]
    assert "revoked_at" in printed(capsys, "audit", "list")
    assert anna not in json.dumps(log)


def test_a_link_logs_in_a_user_and_ends_with_the_user(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    printed(capsys, "user", "add", "anna", "--role", "admin")
    login = Login(settings)
    code = printed(capsys, "login-link", "--user", "anna").strip().partition("link=")[2]
    cookie = login.new_session(login.use_link(code))
    assert (actor := login.actor_of_session(cookie)) is not None
    assert (actor.name, actor.role) == ("anna", Role.ADMIN)
    assert login.actor_of_session(cookie.replace(actor.user_id, OWNER)) is None
    printed(capsys, "user", "revoke", "anna")
    assert login.actor_of_session(cookie) is None
    assert main(["login-link", "--user", "anna"]) == 2
