"""A token goes only to a server that has proved to know it, on the connection on which it did."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from tests.api_server import serve_api
from ui.addresses import REGISTRY_HEADER, registry_id
from ui.api.app import create_app
from ui.cli.app import main
from ui.client import Client
from ui.errors import ServerRefusedError
from ui.server_proof import CHALLENGE_HEADER, PROOF_HEADER, is_proved, new_challenge, prove
from ui.serving.browser import another_answers, studio_answers
from workbench.access.home_token import ensure_token, renew_token
from workbench.access.users import add_user, revoke_user
from workbench.registry.database import transaction
from workbench.settings import Settings, get_settings

HERE = ("127.0.0.1", 8000)


class Impostor(BaseHTTPRequestHandler):
    """Answers as a server of ours does; or asks one, and says what that says."""

    protocol_version = "HTTP/1.1"
    real = ""
    seen: list[str] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self.seen.append(str(self.headers))
        headers = {name: value for name, value in self.headers.items() if name.startswith("x-workbench")}
        answer = httpx.get(self.real + self.path, headers=headers, trust_env=False) if self.real else None
        body = answer.content if answer else b'{"error": {"code": "invalid_api_key"}, "registry": "x"}'
        self.send_response(answer.status_code if answer else 401)
        self.send_header("content-length", str(len(body)))
        self.send_header(PROOF_HEADER, answer.headers.get(PROOF_HEADER, "") if answer else "0" * 64)
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *_: Any) -> None: ...


@contextmanager
def impostor(real: str = "", port: int = 0) -> Iterator[tuple[int, list[str]]]:
    """The port of such a program, and the headers that it gets."""
    seen: list[str] = []
    server = ThreadingHTTPServer(("127.0.0.1", port), type("One", (Impostor,), {"seen": seen, "real": real}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1], seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def is_refused(client: Client) -> bool:
    for ask in (client.health, client.models, lambda: next(client.stream(model="both", prompt="x"))):
        with pytest.raises(ServerRefusedError, match="Another program listens"):
            ask()
    return True


def test_a_program_that_passes_the_question_on_to_the_server_is_not_given_the_token(
    server: uvicorn.Server, settings: Settings
) -> None:
    with (
        impostor(f"http://127.0.0.1:{settings.api_port}") as (port, seen),
        Client(settings.model_copy(update={"api_port": port})) as client,
    ):
        assert is_refused(client)
    assert len(seen) == 3
    assert "s3cret" not in "".join(seen)


def test_a_refusal_of_the_own_server_through_another_port_says_what_works(
    server: uvicorn.Server, settings: Settings
) -> None:
    with (
        impostor(f"http://127.0.0.1:{settings.api_port}") as (port, _),
        Client(settings.model_copy(update={"api_port": port})) as client,
        pytest.raises(ServerRefusedError, match="or one to which the port is passed on") as caught,
    ):
        client.models()
    for help_ in ("the server's own address and port at both ends", "run the command in the container"):
        assert help_ in caught.value.next_step


@pytest.mark.parametrize(("path", "proves"), [("/healthz", True), ("/v1/models", False), ("/login", False)])
def test_a_server_proves_itself_only_at_its_health_path(
    server: uvicorn.Server, settings: Settings, path: str, proves: bool
) -> None:
    headers = {CHALLENGE_HEADER: new_challenge("s3cret"), REGISTRY_HEADER: registry_id(settings)}
    answer = httpx.get(f"http://127.0.0.1:{settings.api_port}{path}", headers=headers, trust_env=False)
    assert (PROOF_HEADER in answer.headers) == proves


def test_a_program_that_takes_the_port_later_is_not_given_the_token(
    server: uvicorn.Server, settings: Settings, wait_until: Any
) -> None:
    with Client(settings) as client:
        assert client.models()
        server.should_exit = True
        wait_until(lambda: not server.servers or not any(one.is_serving() for one in server.servers))
        wait_until(lambda: not server.server_state.connections)
        with impostor(port=settings.api_port) as (_, seen):
            assert is_refused(client)
    assert len(seen) == 3
    assert "s3cret" not in "".join(seen)


def test_a_proof_holds_for_one_question_one_token_one_workbench_and_one_address(tmp_path: Path) -> None:
    ours, others = Settings(home=tmp_path / "ours", token="s3cret"), Settings(home=tmp_path / "others", token="s3cret")
    challenge = new_challenge("s3cret")

    def holds(
        proof: str, question: str = challenge, settings: Settings = ours, address: str = "http://127.0.0.1:8000"
    ) -> bool:
        return is_proved(settings, "s3cret", question, httpx.Response(200, headers={PROOF_HEADER: proof}), address)

    right = prove(ours, "s3cret", challenge, HERE)
    assert holds(right)
    assert holds(prove(ours, "s3cret", challenge, ("::ffff:127.0.0.1", 8000)))
    assert not holds(right, new_challenge("s3cret"))
    assert not holds(right, settings=others)
    assert not holds(right, address="http://127.0.0.1:8001")
    assert not holds(right, address="http://127.0.0.2:8000")
    for proof in ("", "0" * 64, prove(ours, "another", challenge, HERE), challenge):
        assert not holds(proof)
    for malformed in ("", "x", challenge[1:], challenge + "0", challenge + " x"):
        assert prove(ours, "s3cret", malformed, HERE) == ""
    assert prove(ours, "", challenge, HERE) == prove(ours, "s3cret", challenge, None) == ""


def test_a_user_of_a_team_has_a_proof_until_the_token_is_revoked(server: uvicorn.Server, settings: Settings) -> None:
    with transaction(settings) as session:
        token = add_user(session, "ada", "viewer").token
    with Client(settings.model_copy(update={"token": Settings(token=token).token})) as client:
        assert client.models()
        with transaction(settings) as session:
            revoke_user(session, "ada")
        with pytest.raises(ServerRefusedError, match="token"):
            client.models()
    with (
        Client(settings.model_copy(update={"token": Settings(token=token).token})) as client,
        pytest.raises(ServerRefusedError, match="token") as caught,
    ):
        client.models()
    assert "revoked" in caught.value.next_step


@pytest.mark.parametrize("no_auth", [False, True], ids=["token", "no-auth"])
def test_the_token_of_the_home_is_proved_also_after_it_was_renewed(
    no_auth: bool, mixed: Path, free_port: int, host: Any
) -> None:
    ours = Settings(home=mixed, api_port=free_port, no_auth=False)
    ensure_token(ours)
    app = create_app(ours.model_copy(update={"no_auth": no_auth}), host, playground=False)
    with serve_api(app, free_port):
        with Client(ours) as client:
            assert client.models()
            renew_token(ours)
            assert client.models()
        with Client(ours) as client:
            assert client.models()


def test_a_proxy_of_the_environment_sees_nothing(
    server: uvicorn.Server, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with impostor() as (port, seen):
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
        with Client(settings) as client:
            assert client.models()
    assert not seen


def test_a_login_link_is_not_opened_or_printed_for_another_program(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with impostor() as (port, seen):
        assert not studio_answers(settings.model_copy(update={"studio_port": port}))
        monkeypatch.setenv("WORKBENCH_STUDIO_PORT", str(port))
        get_settings.cache_clear()
        assert main(["login-link"]) == 2
    assert "Another program listens at" in capsys.readouterr().err
    assert CHALLENGE_HEADER in seen[0]
    assert "s3cret" not in seen[0]


def test_a_program_that_accepts_and_stays_silent_is_another(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        there = settings.model_copy(update={"studio_port": silent.getsockname()[1]})
        assert another_answers(there, seconds=0.1)
    assert not another_answers(there, seconds=0.1)  # nothing listens any more
