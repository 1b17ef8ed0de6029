"""For whoever runs the server: ids, health, metrics, a bound on time, and signs of life while a stream waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from ui.api import completions
from ui.api.app import create_app
from workbench.settings import Settings

ASK = {"model": "both", "prompt": "the sea", "max_tokens": 3}
Open = Callable[..., TestClient]
WaitUntil = Callable[[Callable[[], bool]], None]


def metrics(api: TestClient) -> dict[str, float]:
    """Every sample by its name and the values of its labels."""
    families = text_string_to_metric_families(api.get("/metrics").text)
    samples = [sample for family in families for sample in family.samples]
    return {" ".join([one.name, *one.labels.values()]).removeprefix("workbench_"): one.value for one in samples}


def test_a_request_keeps_its_id_and_others_get_one(api: TestClient) -> None:
    assert api.get("/health", headers={"x-request-id": "mine-1"}).headers["x-request-id"] == "mine-1"
    for bad in ("", "two words", "x" * 129):
        ids = {api.get("/health", headers={"x-request-id": bad}).headers["x-request-id"] for _ in range(2)}
        assert len(ids) == 2
        assert all(one.startswith("req_") for one in ids)


@pytest.mark.parametrize("path", ["/v1/nothing", "/v1/models/nobody", "/v1/models"])
def test_refusals_have_an_id_too(enter: Open, path: str) -> None:
    assert enter(token="s3cret").get(path, headers={"x-request-id": "mine"}).headers["x-request-id"] == "mine"


@pytest.mark.parametrize("path", ["/health", "/ready", "/metrics", "/docs", "/openapi.json"])
def test_what_operators_read_is_behind_the_same_guard(enter: Open, path: str) -> None:
    assert enter().get(path).status_code == 200
    assert enter().get(path, headers={"host": "evil.example"}).status_code == 403
    assert enter(token="s3cret").get(path).status_code == 401
    assert enter(token="s3cret").get(path, headers={"authorization": "Bearer s3cret"}).status_code == 200


def test_health_has_the_usual_name_too(api: TestClient) -> None:
    assert api.get("/health").json() == api.get("/healthz").json()


def test_a_server_is_ready_until_it_stops(api: TestClient) -> None:
    assert api.get("/ready").json() == {"status": "ready"}
    api.app.state.workbench.close()  # type: ignore[attr-defined]
    refused = api.get("/ready")
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "service_unavailable")


def test_without_a_registry_it_is_alive_but_not_ready(tmp_path: Path, host: Any) -> None:
    app = create_app(Settings(home=tmp_path / "empty"), host, playground=False)
    with TestClient(app, base_url="http://localhost") as api:
        assert [api.get(path).status_code for path in ("/health", "/ready")] == [200, 503]


def test_metrics_count_requests_tokens_and_times(api: TestClient) -> None:
    api.post("/v1/completions", json={**ASK, "prompt": ["the sea", "the law"]})
    with api.stream("POST", "/v1/completions", json={**ASK, "stream": True}) as response:
        response.read()
    api.post("/v1/completions", json={**ASK, "n": 0})
    api.get("/v1/models/nobody")
    api.get("/no/such/page")

    result = metrics(api)
    assert result["generated_tokens_total"] == 9
    assert result["prompt_tokens_total"] == 6
    assert result["first_token_seconds_count"] == 2
    assert result["between_tokens_seconds_count"] == 3 * 3  # with the end of each answer
    assert result["requests_total /v1/completions 200"] == 2
    assert result["requests_total /v1/completions 400"] == 1
    assert result["requests_total /v1/models/{name:path} 404"] == 1
    assert result["requests_total other 404"] == 1
    assert result["request_seconds_count /v1/completions"] == 3
    assert result["unfinished_answers_total"] == 0


def test_metrics_name_slots_and_memory(enter: Open) -> None:
    result = metrics(enter(max_streams=3, max_waiting=7))
    assert (result["slots"], result["queue_slots"]) == (3, 7)
    assert (result["running_streams"], result["waiting_streams"]) == (0, 0)
    assert (result["model_bytes"], result["model_cache_hits_total"], result["model_cache_misses_total"]) == (123, 2, 1)
    assert (result["clustering_bytes"], result["stream_bytes"], result["reserved_stream_bytes"]) == (45, 6, 7)
    assert result["cache_limit_bytes"] == Settings().cache_bytes
    assert (result["judged_drafts_total"], result["accepted_drafts_total"]) == (8, 5)


def test_an_answer_that_fails_is_counted(api: TestClient, host: Any) -> None:
    host.fail_at = 1
    assert api.post("/v1/completions", json=ASK).status_code == 500
    assert metrics(api)["unfinished_answers_total"] == 1


def test_an_answer_that_takes_too_long_is_cut_and_frees_its_slot(enter: Open, host: Any, wait_until: WaitUntil) -> None:
    host.seconds = 0.02
    endless = {**ASK, "max_tokens": 100_000}
    with enter(answer_seconds=0.1) as api:
        refused = api.post("/v1/completions", json=endless)
        assert (refused.status_code, refused.json()["error"]["code"]) == (504, "answer_timeout")
        with api.stream("POST", "/v1/completions", json={**endless, "stream": True}) as response:
            *_, error, end = [line for line in response.iter_lines() if line]
        assert (end, "answer_timeout" in error) == ("data: [DONE]", True)
        wait_until(lambda: host.open == 0)


@pytest.fixture
def held(host: Any, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """No token comes before this is set; a stream is quiet for a moment only."""
    event, tokens = threading.Event(), host.stream

    def stream(*arguments: Any) -> Iterator[Any]:
        assert event.wait(60)
        yield from tokens(*arguments)

    host.stream = stream
    monkeypatch.setattr(completions, "QUIET_SECONDS", 0.01)
    return event


@pytest.fixture
def client(server: Any, settings: Settings) -> Iterator[httpx.Client]:
    """A program that talks with the server on its port."""
    headers = {"authorization": "Bearer s3cret"}
    with httpx.Client(base_url=f"http://127.0.0.1:{settings.api_port}", headers=headers, timeout=60) as client:
        yield client


def test_a_stream_that_waits_sends_comments_until_its_first_token(client: httpx.Client, held: threading.Event) -> None:
    with client.stream("POST", "/v1/completions", json={**ASK, "stream": True}) as response:
        lines = response.iter_lines()
        assert [next(lines) for _ in range(4)] == [": waiting", "", ": waiting", ""]
        held.set()
        rest = [line for line in lines if line and line != ": waiting"]
    assert (len(rest), rest[-1]) == (5, "data: [DONE]")


def test_who_leaves_while_a_stream_waits_frees_its_slot(
    client: httpx.Client, held: threading.Event, wait_until: WaitUntil
) -> None:
    with client.stream("POST", "/v1/completions", json={**ASK, "stream": True}) as response:
        assert next(response.iter_lines()) == ": waiting"
        assert client.get("/health").json()["busy"] == 1
    held.set()
    wait_until(lambda: client.get("/health").json()["busy"] == 0)
