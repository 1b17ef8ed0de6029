"""Parts of an expert of MoDE over HTTP: switched per request, given with every token, and never quietly ignored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from workbench.settings import Settings

ASK = {"model": "apps", "prompt": "the sea", "max_tokens": 2}
ALL = {"backbone": [0.5, 0.25], "parts": {"code": [0.25, 0.375], "law": [0.25, 0.375]}}
CODE = {"backbone": [0.5, 0.25], "parts": {"code": [0.5, 0.75]}}
BACKBONE = {"backbone": [1.0, 1.0], "parts": {}}


@pytest.fixture
def api_settings(composed: Path) -> Settings:
    return Settings(home=composed)


def complete(api: TestClient, **changes: Any) -> dict[str, Any]:
    response = api.post("/v1/completions", json={**ASK, **changes})
    assert response.status_code == 200, response.text
    result: dict[str, Any] = response.json()
    return result


def of_parts(parts: list[str] | None) -> dict[str, Any]:
    return {"experts": [{"id": "apps/composed", "weight": 2.0, "parts": parts}]}


def test_a_model_says_which_parts_its_experts_have(api: TestClient) -> None:
    models = {one["id"]: one["parts"] for one in api.get("/v1/models").json()["data"]}

    assert models["apps"] == models["apps/composed"] == {"apps/composed": ["code", "law"]}
    assert models["both"] == models["both/law"] == {}


def test_every_token_has_the_gates_beside_the_weights(api: TestClient) -> None:
    choice = complete(api)["choices"][0]

    assert choice["expert_weights"] == [{"apps/composed": 1.0}] * 2
    assert choice["gate_weights"] == [{"apps/composed": ALL}] * 2
    assert complete(api, model="both")["choices"][0]["gate_weights"] == [{}, {}]


@pytest.mark.parametrize(("parts", "gates"), [(None, ALL), (["code"], CODE), ([], BACKBONE), (["law", "code"], ALL)])
def test_parts_are_switched_for_one_request(api: TestClient, parts: list[str] | None, gates: dict[str, Any]) -> None:
    result = complete(api, **of_parts(parts))

    assert result["choices"][0]["gate_weights"][0] == {"apps/composed": gates}
    assert result["manifest"]["experts"][0]["parts"] == list(gates["parts"])
    if parts is not None:
        by_expert = {"parts": {"apps/composed": parts}}
        assert complete(api, **by_expert)["manifest"] == {
            **result["manifest"],
            "experts": [{**result["manifest"]["experts"][0], "weight": 1.0}],
        }
    assert complete(api)["choices"][0]["gate_weights"][0] == {"apps/composed": ALL}


def test_a_stream_has_them_with_each_token(api: TestClient) -> None:
    with api.stream("POST", "/v1/completions", json={**ASK, "stream": True, **of_parts(["code"])}) as response:
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line]

    shown = [json.loads(line)["choices"][0]["gate_weights"] for line in lines[:-1]]
    assert shown == [{"apps/composed": CODE}, {"apps/composed": CODE}, None]


def test_a_text_that_is_read_has_them_at_every_token(api: TestClient) -> None:
    job_spec = {"model": "apps", "text": "to be or", "parts": {"apps/composed": []}}
    result = api.post("/v1/workbench/posterior", json=job_spec).json()

    assert result["gate_weights"] == [{"apps/composed": BACKBONE}] * 3
    assert result["manifest"]["experts"][0]["parts"] == []


@pytest.mark.parametrize(
    ("changes", "status", "code", "sentence"),
    [
        (of_parts(["verse"]), 404, "part_not_found", "no part of “apps/composed” called “verse”. Known: code, law."),
        ({"parts": {"apps": []}}, 404, "expert_not_found", "no expert in “apps” called “apps”. Known: apps/composed."),
        ({"model": "verse"}, 404, "model_not_found", "Mixtures: apps, both."),
        ({"model": "both", "parts": {"both/law": []}}, 400, "mixture_error", "has no parts: its method is"),
        ({**of_parts([]), "parts": {}}, 400, "bad_request", "parts within experts or next to active"),
    ],
)
def test_what_cannot_be_switched_is_refused_in_words(
    api: TestClient, changes: dict[str, Any], status: int, code: str, sentence: str
) -> None:
    response = api.post("/v1/completions", json={**ASK, **changes})

    assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    assert sentence in response.json()["error"]["message"]


def test_stored_scores_know_no_parts(api: TestClient) -> None:
    response = api.post("/v1/workbench/mix", json={"mixture": "apps", "parts": {"apps/composed": []}})

    assert response.status_code == 400
    assert "parts" in response.json()["error"]["message"]
