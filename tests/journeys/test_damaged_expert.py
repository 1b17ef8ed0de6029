"""One expert of a mixture is damaged: it is named with what to do, the others answer as before, no number changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from starlette.testclient import TestClient

from tests.journeys.conftest import flip
from ui.api.app import create_app
from ui.cli.app import main
from workbench.integrity.check import check_store
from workbench.job_records import jobs
from workbench.registry.database import reading
from workbench.registry.experts import expert_row
from workbench.schema.tables import Artifact, Evaluation, Expert
from workbench.settings import get_settings
from workbench.store.storage import get_storage

from .conftest import Do

ASK = {"prompt": "the court", "max_tokens": 5, "seed": 1, "logprobs": 2}
EVALUATE = {"kind": "evaluate", "mixture": "small", "block_size": 32, "max_tokens": 128}
NAMED = "The expert “small/court” is damaged: "
OFF = "switch it off: `workbench expert disable small/court`."


def serve() -> TestClient:
    """A server that has loaded nothing yet."""
    app = create_app(get_settings(), playground=False)
    return TestClient(app, base_url="http://127.0.0.1:8000", raise_server_exceptions=False)


def complete(api: TestClient, model: str, **changes: Any) -> Any:
    response = api.post("/v1/completions", json={**ASK, "model": model, **changes})
    body = response.json()
    return body["choices"] if response.status_code == 200 else (response.status_code, body["error"]["message"])


def perplexities(api: TestClient) -> Any:
    response = api.post("/v1/workbench/mix", json={"mixture": "small"})
    assert response.status_code == 200, response.text
    return response.json()["domains"]


@pytest.fixture
def weights(trained: Do) -> Path:
    """The weights of the expert small/court, after the mixture was scored."""
    assert trained(EVALUATE).state == "done"
    with reading() as session:
        folder = get_storage().path(expert_row(session, "small/court").artifact_id)
    return next(folder.glob("*.safetensors"))


def test_others_answer_as_before_and_the_mixture_is_refused_by_the_experts_name(weights: Path) -> None:
    only = {"experts": [{"id": "small/kitchen", "weight": 1}]}
    with serve() as api:
        before = complete(api, "small/kitchen"), complete(api, "small", **only)
        mixed = perplexities(api)
    flip(weights)
    with serve() as api:
        status, message = complete(api, "small")
        assert (status, message.startswith(f"{NAMED}{weights} is not the file that was written")) == (500, True)
        assert OFF in message
        assert complete(api, "small/court")[0] == 500
        assert (complete(api, "small/kitchen"), complete(api, "small", **only)) == before
        assert perplexities(api) == mixed
        assert complete(api, "small")[0] == 500  # nor after others of its base were loaded


def test_after_the_advised_command_the_mixture_answers_and_says_who_takes_part(weights: Path) -> None:
    flip(weights)
    assert main(["expert", "disable", "small/court"]) == 0
    with serve() as api:
        body = api.post("/v1/completions", json={**ASK, "model": "small"}).json()
    assert [one["name"] for one in body["manifest"]["experts"]] == ["small/kitchen"]


def test_a_job_that_needs_the_expert_fails_with_its_name(trained: Do, weights: Path) -> None:
    flip(weights)
    card = trained({**EVALUATE, "max_tokens": 256})
    assert (card.state, card.error.startswith(NAMED)) == ("failed", True)
    assert OFF in card.next_step


def test_a_damaged_base_names_all_its_experts_and_advises_no_switch(trained: Do, weights: Path) -> None:
    with reading() as session:
        row = expert_row(session, "small/court")
        base = get_storage().path(row.base_id)
        assert session.get_one(Artifact, row.base_id).kind == "demix-base"
    flip(next(base.glob("*.safetensors")))
    with serve() as api:
        status, message = complete(api, "small")
    assert status == 500
    assert message.startswith("The experts “small/court” and “small/kitchen” are damaged: ")
    assert "switch it off" not in message


def test_damaged_scores_are_named_by_expert_and_domain(weights: Path) -> None:
    with reading() as session:
        statement = select(Evaluation.artifact_id).join(Evaluation.expert).where(Expert.name == "small/court")
        folder = get_storage().path(session.scalars(statement.limit(1)).one())
    flip(next(path for path in folder.iterdir() if path.suffix in (".npy", ".npz", ".safetensors")))
    with serve() as api:
        error = api.post("/v1/workbench/mix", json={"mixture": "small"}).json()["error"]
        assert error["message"].startswith("The evaluation “small/court on ")
        assert isinstance(complete(api, "small"), list)  # generating needs no scores


def test_damaged_packed_tokens_are_made_again(trained: Do) -> None:
    with reading() as session:
        ids = session.scalars(select(Artifact.id).where(Artifact.kind == "tokens")).all()
    for id in ids:
        flip(next(path for path in get_storage().path(id).iterdir() if path.name != "manifest.json"))
    assert len(check_store(get_settings()).faulty) == len(ids) > 0
    card = trained(EVALUATE)
    assert (card.state, card.result["scored"]) == ("done", 6)
    with reading() as session:
        messages = [event.message for event in jobs.events(session, card.id)]
    num_made_again = sum("It is made again." in message for message in messages)
    assert num_made_again > 0
    assert len(check_store(get_settings()).faulty) == len(ids) - num_made_again  # the rest was not needed
