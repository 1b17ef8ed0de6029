"""Aliases over HTTP: set, used as a model, moved, and deleted."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

PATH = "/v1/workbench/aliases"
LIVE = "sea/law@production"


def model_of(api: TestClient, **changes: Any) -> str:
    answer = api.post("/v1/completions", json={"model": LIVE, "prompt": "the sea", "max_tokens": 2, **changes})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["manifest"]["model"])


def test_an_alias_is_a_model_until_it_is_moved(api: TestClient) -> None:
    card = api.put(f"{PATH}/{LIVE}", json={"model": "both/law"}).json()
    assert (card["name"], card["model"], card["kind"]) == (LIVE, "both/law", "expert")
    assert model_of(api) == "both/law"
    assert api.put(f"{PATH}/{LIVE}", json={"model": "both"}).json()["kind"] == "mixture"
    assert model_of(api, active=["both/code"]) == "both"
    assert api.get(PATH).json()["data"] == [api.get(f"{PATH}/{LIVE}").json()]
    assert api.get(f"/v1/models/{LIVE}").json()["id"] == "both"
    aliases = {one["id"]: one["aliases"] for one in api.get("/v1/models").json()["data"]}
    assert aliases == {"both": [LIVE], "both/code": [], "both/law": []}
    assert api.get(f"/v1/workbench/mixtures/{LIVE}").json()["name"] == "both"
    assert api.post("/v1/workbench/posterior", json={"model": LIVE, "text": "the sea"}).status_code == 200
    assert api.delete(f"{PATH}/{LIVE}").json()["model"] == "both"
    assert api.get(f"/v1/models/{LIVE}").status_code == 404
    body = {"model": LIVE, "prompt": "the sea"}
    assert api.post("/v1/completions", json=body).json()["error"]["code"] == "model_not_found"


def test_a_job_keeps_the_model_that_an_alias_meant(api: TestClient) -> None:
    api.put(f"{PATH}/{LIVE}", json={"model": "both"})
    job = api.post("/v1/workbench/jobs", json={"spec": {"kind": "evaluate", "mixture": LIVE}})
    assert (job.status_code, job.json()["spec"]["mixture"]) == (202, "both")
    api.delete(f"{PATH}/{LIVE}")
    refused = api.post("/v1/workbench/jobs", json={"spec": {"kind": "evaluate", "mixture": LIVE}})
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "bad_spec")


def test_a_copy_takes_the_alias_while_the_mixture_is_changed(api: TestClient) -> None:
    copies = "/v1/workbench/mixtures/both/copy"
    answer = api.post(copies, json={})
    assert (answer.status_code, answer.json()["name"]) == (201, "both.2")
    api.put(f"{PATH}/{LIVE}", json={"model": "both.2"})
    assert model_of(api) == "both.2"
    assert api.post(copies, json={"name": "both.2"}).status_code == 409
    assert api.post(copies, json={"name": LIVE}).status_code == 422
    assert api.post("/v1/workbench/mixtures/nobody/copy", json={}).status_code == 404


@pytest.mark.parametrize(
    ("name", "body", "status"),
    [
        (LIVE, {"model": "nobody"}, 404),
        (LIVE, {}, 400),
        (LIVE, {"model": "both", "expert": "x"}, 400),
        ("law", {"model": "both"}, 422),
        ("law@latest", {"model": "both"}, 422),
    ],
)
def test_what_can_be_no_alias_is_refused(api: TestClient, name: str, body: dict[str, Any], status: int) -> None:
    assert api.put(f"{PATH}/{name}", json=body).status_code == status
    assert api.get(PATH).json()["data"] == []
    assert api.get(f"{PATH}/{name}").status_code == api.delete(f"{PATH}/{name}").status_code == 404
