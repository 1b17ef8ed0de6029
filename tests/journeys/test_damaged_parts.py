"""The folder of an expert of MoDE is damaged while the API serves: an error in words, and others are not disturbed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from engine.loading.host import Host
from tests.journeys.test_switch_parts import register
from ui.api.app import create_app
from workbench.registry.database import reading
from workbench.registry.experts import expert_row
from workbench.settings import get_settings
from workbench.store.storage import get_storage

ASK = {"prompt": "the court", "max_tokens": 4, "seed": 1, "logprobs": 0}
HURT, WELL = "law/composed", "food/composed"
PART = "part-0.safetensors"


@pytest.fixture
def api(trained: Any) -> Iterator[TestClient]:
    """A server that holds no weights as yet, with one slot: whoever kept it would keep all others out."""
    assert trained
    register(["court", "sea"], HURT)
    register(["kitchen"], WELL)
    settings = get_settings().model_copy(update={"max_streams": 1})
    app = create_app(settings, Host(device="cpu"), playground=False)
    with TestClient(app, base_url="http://127.0.0.1:8000", raise_server_exceptions=False) as client:
        yield client


def cut_short(name: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: len(data) // 2])

    return damage


def flipped(folder: Path) -> None:
    data = bytearray((folder / PART).read_bytes())
    data[-1] ^= 1
    (folder / PART).write_bytes(data)


def missing(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


DAMAGES = {
    "part cut short": (cut_short(PART), PART, "is not the file that was written"),
    "part flipped": (flipped, PART, "is not the file that was written"),
    "part missing": (missing(PART), PART, "is missing"),
    "second part missing": (missing("part-1.safetensors"), "part-1.safetensors", "is missing"),
    "card cut short": (cut_short("expert.json"), "expert.json", "is not the file that was written"),
    "card missing": (missing("expert.json"), "expert.json", "is missing"),
    "manifest cut short": (cut_short("manifest.json"), "manifest.json", "cannot be read"),
}
each_damage = pytest.mark.parametrize(("damage", "file", "fault"), DAMAGES.values(), ids=list(DAMAGES))


def folder() -> Path:
    with reading() as session:
        return get_storage().path(expert_row(session, HURT).artifact_id)


def message(api: TestClient, model: str, **job_spec: Any) -> dict[str, Any]:
    """Text and log-probabilities of an answer."""
    response = api.post("/v1/completions", json={**ASK, "model": model, **job_spec})
    assert response.status_code == 200, response.text
    choice: dict[str, Any] = response.json()["choices"][0]
    return choice


def refused(api: TestClient, path: str, **job_spec: Any) -> str:
    """The sentence that reports damage."""
    response = api.post(path, json={"model": HURT, **job_spec})
    error = response.json()["error"]
    assert (response.status_code, error["type"], error["code"]) == (500, "server_error", "damaged_file")
    return str(error["message"])


@each_damage
def test_damage_is_reported_with_cause_and_next_step_and_others_answer_as_before(api, damage, file, fault) -> None:
    expected = message(api, WELL)
    data = {one: one.read_bytes() for one in folder().iterdir()}
    damage(folder())
    for path, job_spec in (
        ("/v1/completions", ASK),
        ("/v1/completions", {**ASK, "stream": True}),
        ("/v1/completions", {**ASK, "parts": {HURT: ["sea"]}}),
        ("/v1/workbench/posterior", {"text": "the court"}),
    ):
        shown = refused(api, path, **job_spec)
        assert f"{folder() / file} {fault}" in shown
        assert shown.endswith("Restore it from a copy, or run the job that made it again.")
        assert message(api, WELL) == expected
    assert HURT in [one["id"] for one in api.get("/v1/models").json()["data"]]
    for one, content in data.items():
        one.write_bytes(content)
    assert message(api, HURT)["gate_weights"][0][HURT]["parts"].keys() == {"court", "sea"}


@each_damage
def test_weights_that_were_loaded_before_answer_on(api, damage, file, fault) -> None:
    expected = message(api, HURT), message(api, HURT, parts={HURT: ["sea"]})
    damage(folder())
    assert message(api, WELL)["gate_weights"][0][WELL]["parts"].keys() == {"kitchen"}
    assert (message(api, HURT), message(api, HURT, parts={HURT: ["sea"]})) == expected
