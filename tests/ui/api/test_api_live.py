"""A real server on a real port: clients that leave, our own client, and OpenAI's rules of streaming."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from engine.inference.cancellation import check_cancelled
from ui.addresses import registry_id
from ui.client import Client
from ui.errors import ServerDownError, ServerRefusedError
from ui.serving import http_limits
from ui.serving.doctor import examine
from ui.studio.shared.health import api_signs
from workbench.settings import Settings

ENDLESS = {"model": "both", "prompt": "the sea", "max_tokens": 100_000}
WaitUntil = Callable[[Callable[[], bool]], None]


@pytest.fixture
def client(server: uvicorn.Server, settings: Settings) -> Iterator[Client]:
    with Client(settings) as client:
        yield client


def busy(client: Client) -> int:
    return client.health().busy


def test_our_client_streams_what_it_completes(client: Client) -> None:
    job_spec = {"model": "both", "prompt": "the sea", "max_tokens": 3}

    streamed = "".join(chunk.choices[0].text for chunk in client.stream(**job_spec))

    assert streamed == client.complete(**job_spec).choices[0].text == " sea0 sea1 sea2"
    assert [model.id for model in client.models()] == ["both", "both/code", "both/law"]


def test_a_reader_that_leaves_frees_its_slot(client: Client, host: Any, wait_until: WaitUntil) -> None:
    host.seconds = 0.005
    with closing(client.stream(**ENDLESS)) as chunks:
        next(chunks)
        assert busy(client) == 1

    wait_until(lambda: busy(client) == 0 and host.open == 0)


def connect_and_ask(settings: Settings, **request: Any) -> socket.socket:
    """A connection on which a completion is requested, and nothing is read."""
    body = json.dumps({**ENDLESS, **request}).encode()
    head = (
        "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer s3cret\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    line = socket.create_connection(("127.0.0.1", settings.api_port))
    line.sendall(head.encode() + body)
    return line


def test_one_who_waits_for_the_full_answer_and_leaves_frees_his_slot(
    client: Client, settings: Settings, host: Any, wait_until: WaitUntil
) -> None:
    host.seconds = 0.005
    with connect_and_ask(settings):
        wait_until(lambda: busy(client) == 1)

    wait_until(lambda: busy(client) == 0 and host.open == 0)


@pytest.mark.parametrize("streamed", [True, False])
def test_one_who_leaves_while_the_prompt_is_read_frees_the_slot_before_the_first_token(
    client: Client, settings: Settings, host: Any, monkeypatch: Any, wait_until: WaitUntil, streamed: bool
) -> None:
    reading = threading.Event()

    def read_without_end(*_: Any) -> Iterator[Any]:
        reading.set()
        while True:
            check_cancelled()
            time.sleep(0.002)
        yield

    monkeypatch.setattr(host, "stream", read_without_end)
    with connect_and_ask(settings, stream=streamed):
        assert reading.wait(60)
        assert busy(client) == 1

    wait_until(lambda: busy(client) == 0)


def test_one_who_leaves_the_queue_never_begins(client: Client, host: Any, wait_until: WaitUntil) -> None:
    host.seconds = 0.005
    with closing(client.stream(**ENDLESS)) as first, closing(client.stream(**ENDLESS)) as second:
        next(first), next(second)
        with pytest.raises(ServerDownError, match="in time"), Client(client_settings(client)) as hasty:
            hasty._http.timeout = 0.3
            hasty.complete(**ENDLESS)
        assert host.most_open == 2

    wait_until(lambda: busy(client) == 0)
    assert (host.most_open, host.open) == (2, 0)


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """One generation may wait, no more."""
    monkeypatch.setenv("WORKBENCH_MAX_WAITING", "1")


@pytest.fixture
def waiting(client: Client, host: Any, wait_until: WaitUntil) -> Iterator[list[httpx.Response]]:
    """Both slots are taken and one request waits; the list will hold its answer."""
    host.seconds = 0.005
    answers: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: answers.append(client._http.post("/v1/completions", json=ENDLESS)))
    with closing(client.stream(**ENDLESS)) as first, closing(client.stream(**ENDLESS)) as second:
        next(first), next(second)
        thread.start()
        wait_until(lambda: client.health().waiting == 1)
        yield answers
    host.fail_at = 0  # so that what waited ends
    thread.join()


@pytest.mark.usefixtures("narrow", "waiting")
@pytest.mark.parametrize("stream", [True, False])
def test_a_full_queue_is_refused_with_a_time_to_retry(client: Client, stream: bool) -> None:
    refused = client._http.post("/v1/completions", json={**ENDLESS, "stream": stream})
    error = refused.json()["error"]

    assert (refused.status_code, error["type"], error["code"]) == (429, "rate_limit_error", "rate_limit_exceeded")
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert "workbench_unfinished_answers_total 0.0" in client._http.get("/metrics").text
    with pytest.raises(ServerRefusedError, match="The server is busy") as caught:
        client.complete(**ENDLESS)
    assert (caught.value.status, caught.value.code) == (429, "rate_limit_exceeded")


@pytest.mark.usefixtures("narrow")
def test_one_who_waited_and_left_frees_a_place_for_another(client: Client, host: Any, wait_until: WaitUntil) -> None:
    host.seconds = 0.005
    with closing(client.stream(**ENDLESS)) as first, closing(client.stream(**ENDLESS)) as second:
        next(first), next(second)
        for _ in range(2):
            with pytest.raises(ServerDownError, match="in time"), Client(client_settings(client)) as hasty:
                hasty._http.timeout = 0.3
                hasty.complete(**ENDLESS)
            wait_until(lambda: client.health().waiting == 0)


def test_a_waiting_client_is_informed_when_the_server_stops(
    client: Client, server: uvicorn.Server, waiting: list[httpx.Response], wait_until: WaitUntil
) -> None:
    server.should_exit = True
    wait_until(lambda: bool(waiting))
    error = waiting[0].json()["error"]

    assert (waiting[0].status_code, error["type"], error["code"]) == (503, "server_error", "service_unavailable")
    assert "shutting down" in error["message"]


def client_settings(client: Client) -> Settings:
    """The settings that lead to the same server."""
    return Settings(api_port=client._http.base_url.port, token="s3cret")


def test_many_concurrent_requests_each_get_their_own_answer(client: Client, host: Any) -> None:
    host.seconds = 0.001
    answers: dict[int, str] = {}

    def ask(number: int) -> None:
        answers[number] = client.complete(model="both", prompt=f"word{number}", max_tokens=5).choices[0].text

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert answers == {n: "".join(f" word{n}{i}" for i in range(5)) for n in range(24)}
    assert host.most_open <= 2


def test_a_refusal_keeps_its_words_and_status(client: Client) -> None:
    with pytest.raises(ServerRefusedError, match="nobody") as caught:
        client.complete(model="nobody", prompt="x")
    with pytest.raises(ServerRefusedError, match="nobody"):
        next(client.stream(model="nobody", prompt="x"))

    assert (caught.value.status, caught.value.code) == (404, "model_not_found")


def test_a_wrong_token_is_a_refusal(server: uvicorn.Server, settings: Settings) -> None:
    with Client(Settings(api_port=settings.api_port, token="wrong")) as another:
        with pytest.raises(ServerRefusedError, match="token"):
            another.models()
        with pytest.raises(ServerRefusedError, match="token"):
            another.health()


def test_no_server_is_reported_with_the_command_to_run(free_port: int) -> None:
    with Client(Settings(api_port=free_port)) as client:
        with pytest.raises(ServerDownError, match="workbench up"):
            client.health()
        with pytest.raises(ServerDownError, match="workbench up"):
            client.models()


def test_a_registry_is_known_by_its_place_and_not_by_a_password(tmp_path: Path) -> None:
    homes = [Settings(home=tmp_path / name) for name in ("a@x", "b@x")]
    bases = [Settings(database_url=f"postgresql://{who}@db/house") for who in ("me:secret", "you")]

    assert len({registry_id(home) for home in (*homes, *bases)}) == 3
    assert registry_id(bases[0]) == registry_id(bases[1])


def test_another_workbenchs_server_is_not_used(server: uvicorn.Server, settings: Settings, tmp_path: Path) -> None:
    elsewhere = settings.model_copy(update={"home": tmp_path / "elsewhere"})
    sentence = f"Another workbench's server listens on port {settings.api_port}"
    with Client(elsewhere) as client:
        for ask in (client.health, client.models, lambda: next(client.stream(model="both", prompt="x"))):
            with pytest.raises(ServerRefusedError, match=sentence) as caught:
                ask()
    assert "WORKBENCH_API_PORT" in caught.value.next_step
    sign, device = api_signs(elsewhere)
    assert (sign.is_well, sign.sentence, device.is_well) == (False, sentence + ".", None)
    result = {one.name: one for one in examine(elsewhere)}["API"]
    assert (result.ok, result.finding) == (False, sentence + ".")


def test_a_program_that_is_no_workbench_is_called_so(settings: Settings) -> None:
    answer = httpx.MockTransport(lambda _: httpx.Response(200, json={"status": "ok"}))
    with Client(settings, answer) as client, pytest.raises(ServerRefusedError, match="Another program"):
        client.health()


@pytest.mark.parametrize("status", [200, 401, 404])
def test_the_token_is_not_sent_to_another_program(settings: Settings, status: int) -> None:
    shown: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        shown.append(request)
        return httpx.Response(status, json={"error": "log in"})

    with Client(settings, httpx.MockTransport(answer)) as client:
        for ask in (client.health, client.models, lambda: next(client.stream(model="both", prompt="x"))):
            with pytest.raises(ServerRefusedError, match="Another program"):
                ask()
    assert [one.url.path for one in shown] == ["/healthz"] * 3
    assert not [one for one in shown if "authorization" in one.headers]


def test_a_client_that_does_not_read_its_answer_frees_the_slots(
    client: Client, settings: Settings, host: Any, wait_until: WaitUntil, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.seconds = 0.001
    monkeypatch.setattr(http_limits, "STALL_SECONDS", 0.2)
    with connect_and_ask(settings, prompt="w" * 900, stream=True, n=8):
        wait_until(lambda: busy(client) == 1)  # of two slots
        assert client.complete(model="both", prompt="x", max_tokens=1).choices[0].text == " x0"
        wait_until(lambda: busy(client) == 0 and host.open == 0)


def test_a_header_without_end_is_refused_without_a_token(server: uvicorn.Server, settings: Settings) -> None:
    with socket.create_connection(("127.0.0.1", settings.api_port), timeout=60) as line:
        line.sendall(b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nx-long: " + b"a" * (128 << 10))
        assert line.recv(100).startswith(b"HTTP/1.1 431 ")
