"""What a vLLM server may do wrong is one sentence each, and no wait is without a bound."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest

from engine.inference.remote_rows import RowToken
from ui.api.error_responses import error_body, status_of
from ui.errors import ServingEngineError
from ui.generation.vllm_server import ROW, VllmServer

KNOWN = {"data": [{"id": "base", "max_model_len": 128}, {"id": "adapter", "max_model_len": None}]}


def chunk(id: int, logprob: float = -1.0) -> str:
    choice = {"token_ids": [id], "logprobs": {"token_logprobs": [logprob]}}
    return f"data: {json.dumps({'choices': [choice]})}\n\n"


def server(complete: Callable[[dict[str, Any]], httpx.Response], *, knows_mixtures: bool = True) -> VllmServer:
    """A server that answers a completion so."""

    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/models":
            return httpx.Response(200, json=KNOWN)
        body = json.loads(request.content)
        if body.get("vllm_xargs") == {ROW: "?"}:
            error = {"error": {"message": f"“{ROW}” must be JSON"}}
            return httpx.Response(400, json=error) if knows_mixtures else httpx.Response(200, json={"choices": []})
        return complete(body)

    return VllmServer("http://vllm.test:1", 5.0, "a key", transport=httpx.MockTransport(handle))


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(ServingEngineError) as caught:
        call()
    return str(caught.value)


def test_models_have_their_positions() -> None:
    assert server(lambda _: httpx.Response(200)).models() == {"base": 128, "adapter": 0}


def test_an_adapter_that_another_client_loaded_is_there() -> None:
    refusing = server(lambda _: httpx.Response(400, json={"error": {"message": "has already been loaded"}}))
    refusing.load("adapter", Path("/somewhere"))
    assert "already been loaded" in refused(lambda: refusing.load("unknown", Path("/somewhere")))


def test_the_rows_of_a_group_are_read_side_by_side() -> None:
    texts = {"a": chunk(5, -1.0) + chunk(6, -2.0), "b": chunk(5, -3.0) + chunk(6, -4.0)}
    answering = server(lambda body: httpx.Response(200, text=texts[body["model"]] + "data: [DONE]\n\n"))
    rows = list(answering.stream([{"model": "a"}, {"model": "b"}]))
    assert rows == [[RowToken(5, -1.0), RowToken(5, -3.0)], [RowToken(6, -2.0), RowToken(6, -4.0)]]


def test_a_server_without_the_plug_in_is_refused() -> None:
    assert "does not know mixtures (200)" in refused(server(lambda _: httpx.Response(200), knows_mixtures=False).models)


def test_a_row_that_ends_before_the_others_ends_the_answer() -> None:
    texts = {"a": chunk(5) + chunk(6), "b": chunk(5)}
    answering = server(lambda body: httpx.Response(200, text=texts[body["model"]]))
    assert "before the others" in refused(lambda: list(answering.stream([{"model": "a"}, {"model": "b"}])))


def test_a_row_that_fails_ends_the_answer_while_the_others_wait() -> None:
    """Its group will never be complete, so no other row gets a token."""
    wakes = Event()

    def complete(body: dict[str, Any]) -> httpx.Response:
        if body["model"] == "a":
            wakes.wait(30)
        return httpx.Response(400 if body["model"] == "b" else 200, text="no such adapter")

    assert "no such adapter" in refused(lambda: list(server(complete).stream([{"model": "a"}, {"model": "b"}])))
    assert not wakes.is_set()
    wakes.set()


def test_an_error_in_the_stream_is_its_own_sentence() -> None:
    text = chunk(5) + 'data: {"error": {"message": "out of blocks"}}\n\n'
    answering = server(lambda _: httpx.Response(200, text=text))
    assert "out of blocks" in refused(lambda: list(answering.stream([{"model": "a"}])))


def test_a_refusal_says_what_vllm_says() -> None:
    answering = server(lambda _: httpx.Response(404, json={"error": {"message": "The model `x` does not exist."}}))
    assert "(404): The model `x` does not exist." in refused(lambda: answering.read(["x"], [1, 2]))
    assert "(404)" in refused(lambda: list(answering.stream([{"model": "x"}])))


@pytest.mark.parametrize(
    ("failure", "sentence"),
    [
        (httpx.ConnectError("no route"), "vLLM does not answer at http://vllm.test:1."),
        (httpx.ReadTimeout("slow"), "was silent for too long"),
        (httpx.RemoteProtocolError("cut"), "broke the connection: cut"),
    ],
)
def test_a_server_that_is_away_or_silent_is_an_error_and_is_tried_again(failure: Exception, sentence: str) -> None:
    away = [False]

    def complete(_: dict[str, Any]) -> httpx.Response:
        if away[0]:
            raise failure
        return httpx.Response(200, text=chunk(5))

    answering = server(complete)
    assert list(answering.stream([{"model": "a"}])) == [[RowToken(5, -1.0)]]
    away[0] = True
    assert sentence in refused(lambda: list(answering.stream([{"model": "a"}])))
    away[0] = False
    assert list(answering.stream([{"model": "a"}])) == [[RowToken(5, -1.0)]]


def test_clients_learn_that_the_fault_is_the_servers() -> None:
    body = error_body(ServingEngineError("vLLM does not answer."))
    assert status_of(ServingEngineError("vLLM does not answer.")) == 503
    assert (body["error"]["type"], body["error"]["code"]) == ("server_error", "serving_engine")
