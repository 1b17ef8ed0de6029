"""A link logs in once and not for long, a cookie is not the token, and wrong tokens cannot be tried without end."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from ui.cli.app import main
from ui.serving.browser import page_to_open
from ui.serving.login import LINK_SECONDS, SESSION_SECONDS, Login
from workbench.errors import BadSettingsError
from workbench.registry.database import migrate
from workbench.settings import Settings, get_settings


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home", token="s3cret")


def test_a_link_works_once_whichever_process_gets_it(settings: Settings) -> None:
    code = Login(settings).new_link()
    assert Login(settings).use_link(code)
    assert not Login(settings).use_link(code)


@pytest.mark.parametrize("code", ["", "x", "../secret", "é"])
def test_a_link_that_nobody_made_does_not_work(settings: Settings, code: str) -> None:
    assert not Login(settings).use_link(code)
    Login(settings).new_link()
    assert not Login(settings).use_link(code)


def test_a_link_works_for_some_minutes(settings: Settings) -> None:
    clock = Clock()
    login = Login(settings, clock)
    early, late = login.new_link(), login.new_link()
    clock.now += LINK_SECONDS - 1
    assert login.use_link(early)
    clock.now += 1
    assert not login.use_link(late)


def test_old_links_leave_no_files(settings: Settings) -> None:
    clock = Clock()
    Login(settings, clock).new_link()
    clock.now += LINK_SECONDS
    Login(settings, clock).new_link()
    assert len(list((settings.root / "login" / "links").iterdir())) == 1


def test_a_session_outlives_a_restart_and_ends(settings: Settings) -> None:
    clock = Clock()
    cookie = Login(settings, clock).new_session()
    assert "s3cret" not in cookie
    assert Login(settings, clock).actor_of_session(cookie)
    clock.now += SESSION_SECONDS
    assert not Login(settings, clock).actor_of_session(cookie)


def test_a_logout_ends_only_its_cookie_in_every_process(settings: Settings) -> None:
    ended, other = Login(settings).new_session(), Login(settings).new_session()
    Login(settings).end_session(ended)
    assert not Login(settings).actor_of_session(ended)
    assert Login(settings).actor_of_session(other)
    for forged in ("", "9999999999.x.0.y", f"{ended}x"):
        Login(settings).end_session(forged)
    assert len(list((settings.root / "login" / "ended").iterdir())) == 1


def test_ended_logins_leave_no_files_once_their_cookies_have_expired(settings: Settings) -> None:
    clock = Clock()
    login = Login(settings, clock)
    login.end_session(login.new_session())
    clock.now += SESSION_SECONDS
    login.end_session(login.new_session())
    assert len(list((settings.root / "login" / "ended").iterdir())) == 1


def test_the_first_logins_of_two_processes_share_a_secret(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other process makes the secret after this one found none."""
    other: list[str] = []
    making = secrets.token_bytes

    def overtaken(size: int) -> bytes:
        monkeypatch.setattr(secrets, "token_bytes", making)
        other.append(Login(settings).new_session())
        return making(size)

    monkeypatch.setattr(secrets, "token_bytes", overtaken)
    own = Login(settings).new_session()
    assert all(Login(settings).actor_of_session(cookie) for cookie in (own, *other))
    assert (len(other), len(list((settings.root / "login").iterdir()))) == (1, 1)


def test_a_file_system_without_links_keeps_a_secret_too(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refuse)
    cookie = Login(settings).new_session()
    assert Login(settings).actor_of_session(cookie)
    assert Login(settings).actor_of_session(Login(settings).new_session())


def test_another_token_ends_sessions_and_links(settings: Settings) -> None:
    login, changed = Login(settings), Login(Settings(home=settings.home, token="another"))
    assert not changed.actor_of_session(login.new_session())
    assert not changed.use_link(login.new_link())


@pytest.mark.parametrize("change", ["", "9", "x"])
def test_a_session_that_was_changed_is_none(settings: Settings, change: str) -> None:
    login = Login(settings)
    expires, rest = login.new_session().split(".", 1)
    assert not login.actor_of_session(f"{int(expires) + 1}.{rest}" if change else change)
    assert not login.actor_of_session(f"{expires}.{rest}{change}" if change else ".")


def test_nobody_else_can_read_what_a_login_needs(settings: Settings) -> None:
    page = Path(page_to_open(settings).removeprefix("file://"))
    files = [path for path in page.parent.rglob("*") if path.is_file()]
    assert len(files) == 3  # the secret, the link, and the page that leads to it
    assert all(one.stat().st_mode & 0o077 == 0 for one in [page.parent, *files])


def test_the_command_prints_a_fresh_link(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["login-link"]) == 2
    assert "WORKBENCH_NO_AUTH is set" in capsys.readouterr().err

    monkeypatch.setattr("workbench.settings.get_settings", lambda: settings)
    assert main(["login-link"]) == 2  # no workbench there: the link would open nothing
    assert not (settings.root / "login").exists()
    migrate(settings)
    capsys.readouterr()
    assert main(["login-link"]) == 0
    code = capsys.readouterr().out.strip().partition("/login?link=")[2]
    assert Login(settings).use_link(code)


@pytest.mark.parametrize("token", ["gehéim", "s3cret\n", " s3cret", "s3\x00cret", "🔑"])
def test_a_token_that_no_header_can_carry_is_refused(monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    monkeypatch.setattr(os, "environ", {"WORKBENCH_TOKEN": token})
    with pytest.raises(BadSettingsError, match="WORKBENCH_TOKEN must be printable ASCII") as refusal:
        get_settings.__wrapped__()
    assert token.strip() not in str(refusal.value)
