"""Training from outside: a client of the API submits jobs, follows their curves and reads what they made."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from starlette.testclient import TestClient

from jobs.attempt.attempt import run_here
from jobs.attempt.work import log_path
from ui.api import jobs as routes
from ui.api.app import create_app
from ui.generation.app_state import MOST_FOLLOWERS
from workbench.job_records import jobs, leases
from workbench.job_records.jobs import create_job
from workbench.kinds.analysis import SelfCheck
from workbench.kinds.kind import known_kinds
from workbench.registry.database import transaction
from workbench.settings import Settings

JOBS = "/v1/workbench/jobs"
SHAPE = {"num_layers": 2, "width": 16, "num_heads": 2, "ffn_width": 32, "max_positions": 64}
TRAINING = {"num_steps": 4, "block_size": 16, "warmup": 0, "evaluate_every": 2, "checkpoint_every": 4}


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A folder that a client may name, with two domains of text."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for name, words in {
        "law": "the court held that this statute applies",
        "sea": "waves broke over grey rocks",
    }.items():
        lines = [json.dumps({"text": f"{number}: {words}. " * 20}) for number in range(40)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder


@pytest.fixture
def settings(home: Path, texts: Path) -> Settings:
    return Settings(home=home, data_folders=str(texts))


@pytest.fixture
def api(settings: Settings) -> Iterator[TestClient]:
    app = create_app(settings, playground=False)
    with TestClient(app, base_url="http://127.0.0.1:8000", raise_server_exceptions=False) as client:
        yield client


def submitted(api: TestClient, spec: dict[str, Any], **more: Any) -> str:
    """The id of a job that was accepted."""
    answer = api.post(JOBS, json={"spec": spec, **more})
    assert answer.status_code == 202, answer.text
    assert answer.headers["location"] == f"{JOBS}/{answer.json()['id']}"
    return str(answer.json()["id"])


def finished(api: TestClient, settings: Settings, spec: dict[str, Any]) -> dict[str, Any]:
    """A job that was submitted over HTTP, after a worker ran it."""
    job = submitted(api, spec)
    for _ in run_here(job, settings):
        pass
    card: dict[str, Any] = api.get(f"{JOBS}/{job}").json()["job"]
    assert card["state"] == "done", card
    return card


def refused(answer: Any) -> tuple[int, str, str]:
    error = answer.json()["error"]
    return answer.status_code, error["code"], error["message"]


def events(text: str) -> list[dict[str, Any]]:
    """The events of a stream, which ends with [DONE]."""
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def running(session: Any) -> tuple[str, int]:
    """A job that runs, with its fence."""
    job = create_job(session, SelfCheck())
    fence = leases.claim(session, job, "tests", 60.0, 3)
    assert fence is not None
    return job, fence


@pytest.mark.usefixtures("home")
def test_a_training_is_driven_only_by_http(api: TestClient, settings: Settings, texts: Path) -> None:
    for name in ("law", "sea"):
        finished(api, settings, {"kind": "import-corpus", "name": name, "path": str(texts / f"{name}.jsonl")})
    assert [one["name"] for one in api.get("/v1/workbench/domains").json()["data"]] == ["law", "sea"]
    assert [one["name"] for one in api.get("/v1/workbench/corpora").json()["data"]] == ["law", "sea"]
    seed = {"kind": "make-seed", "name": "tiny", "domains": ["law"], "vocab_size": 300, "shape": SHAPE}
    finished(api, settings, seed)
    assert [one["name"] for one in api.get("/v1/workbench/seeds").json()["data"]] == ["tiny"]
    train = {"kind": "train-joint", "name": "m", "seed_model": "tiny", "domains": ["law", "sea"], "training": TRAINING}

    card = finished(api, settings, train)

    metrics = api.get(f"{JOBS}/{card['id']}/metrics").json()
    assert [one["step"] for one in metrics["points"] if one["metric"] == "loss"] == [1, 2, 3, 4]
    assert {one["unit"] for one in metrics["points"] if one["metric"] == "dev_loss/sea"} == {"nats per token"}
    table = pd.read_csv(StringIO(api.get(f"{JOBS}/{card['id']}/metrics?format=csv").text), keep_default_na=False)
    assert table.to_dict("records") == metrics["points"]
    chosen = api.get(f"{JOBS}/{card['id']}/metrics", params={"metric": ["dev_loss", "learning_rate"]}).json()
    assert {one["metric"] for one in chosen["points"]} == {"dev_loss/law", "dev_loss/sea", "learning_rate"}
    [event] = events(api.get(f"{JOBS}/{card['id']}/metrics?follow=true").text)
    assert (event["state"], len(event["points"])) == ("done", len(metrics["points"]))
    assert [one["name"] for one in api.get("/v1/workbench/experts").json()["data"]] == ["m/law", "m/sea"]
    assert api.get("/v1/workbench/experts/m/law").json()["method"] == "demix"
    assert api.get("/v1/workbench/mixtures").json()["data"] == [api.get("/v1/workbench/mixtures/m").json()]
    text = api.post("/v1/completions", json={"model": "m", "prompt": "the court", "max_tokens": 2})
    assert set(text.json()["choices"][0]["expert_weights"][0]) == {"m/law", "m/sea"}


def test_a_job_is_stopped_and_continued(api: TestClient) -> None:
    job = submitted(api, {"kind": "selfcheck"}, title="Is it sound?", priority=5)

    def act(verb: str) -> Any:
        return api.post(f"{JOBS}/{job}/{verb}")

    assert api.get(f"{JOBS}/{job}").json()["job"]["title"] == "Is it sound?"
    assert act("pause").json()["state"] == "paused"
    assert act("resume").json()["state"] == "queued"
    assert act("cancel").json()["state"] == "cancelled"
    assert refused(act("resume"))[:2] == (409, "job_error")
    assert act("retry").json()["state"] == "queued"
    history = api.get(f"{JOBS}/{job}").json()["events"]
    assert [one["message"] for one in history] == ["Queued.", "Paused.", "Resumed.", "Cancelled.", "Retried."]


def test_jobs_are_listed_by_status_and_kind(api: TestClient) -> None:
    first, second = (submitted(api, {"kind": "selfcheck"}) for _ in range(2))
    third = submitted(api, {"kind": "selfcheck"}, after=[first])
    api.post(f"{JOBS}/{second}/cancel")

    def listed(**query: Any) -> list[str]:
        return [one["id"] for one in api.get(JOBS, params=query).json()["data"]]

    assert set(listed()) == {first, second, third}
    assert listed(status="cancelled") == [second]
    assert set(listed(status="queued", kind="selfcheck")) == {first, third}
    assert listed(kind="evaluate") == []
    assert len(listed(limit=2)) == 2
    assert refused(api.get(JOBS, params={"status": "tired"}))[0] == 400
    assert api.get(f"{JOBS}/{third}").json()["job"]["after"] == [first]


def test_a_training_queues_its_scoring_where_that_is_wanted(api: TestClient, settings: Settings, texts: Path) -> None:
    for name in ("law", "sea"):
        finished(api, settings, {"kind": "import-corpus", "name": name, "path": str(texts / f"{name}.jsonl")})
    finished(
        api, settings, {"kind": "make-seed", "name": "tiny", "domains": ["law"], "vocab_size": 300, "shape": SHAPE}
    )
    train = {"kind": "train-joint", "seed_model": "tiny", "domains": ["law", "sea"], "training": TRAINING}
    submitted(api, {**train, "name": "unscored"})
    job = submitted(api, {**train, "name": "scored"}, score=True, priority=3)
    [scoring] = api.get(JOBS, params={"kind": "evaluate"}).json()["data"]
    assert (scoring["spec"]["mixture"], scoring["after"], scoring["priority"]) == ("scored", [job], 3)


def test_the_end_of_a_log_is_read(api: TestClient, settings: Settings) -> None:
    job = submitted(api, {"kind": "selfcheck"})
    assert api.get(f"{JOBS}/{job}/log").json() == {"job": job, "lines": []}
    path = log_path(settings, job)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("first\nsecond\nthird\n", encoding="utf-8")
    assert api.get(f"{JOBS}/{job}/log", params={"lines": 2}).json()["lines"] == ["second", "third"]
    assert refused(api.get(f"{JOBS}/{job}/log", params={"lines": 0}))[0] == 400


def test_points_are_followed_while_a_job_runs(api: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    with transaction() as session:
        job, fence = running(session)
        leases.record(session, job, fence, metrics=[("loss", 1, 5.0)])
    acts = iter([("record", {"metrics": [("loss", 2, 4.0)]}), ("record", {}), ("finish", {"state": "done"})])

    async def meanwhile(_: float) -> None:
        verb, values = next(acts)
        with transaction() as session:
            getattr(leases, verb)(session, job, fence, **values)

    monkeypatch.setattr(routes.asyncio, "sleep", meanwhile)
    stream = events(api.get(f"{JOBS}/{job}/metrics?follow=true").text)

    assert [(one["state"], [point["value"] for point in one["points"]]) for one in stream] == [
        ("running", [5.0]),
        ("running", [4.0]),
        ("done", []),
    ]


def test_a_job_that_is_deleted_meanwhile_ends_the_stream(api: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    with transaction() as session:
        job, fence = running(session)

    async def meanwhile(_: float) -> None:
        with transaction() as session:
            leases.finish(session, job, fence, "done")
            jobs.delete_job(session, job)

    monkeypatch.setattr(routes.asyncio, "sleep", meanwhile)
    stream = events(api.get(f"{JOBS}/{job}/metrics?follow=true").text)

    assert stream[-1]["error"]["code"] == "job_not_found"


def test_only_so_many_follow_together_and_each_place_becomes_free(api: TestClient) -> None:
    job = submitted(api, {"kind": "selfcheck"})
    api.post(f"{JOBS}/{job}/cancel")
    state = api.app.state.workbench  # type: ignore[attr-defined]
    path = f"{JOBS}/{job}/metrics?follow=true"

    for _ in range(MOST_FOLLOWERS + 1):  # one after the other
        assert events(api.get(path).text)[-1]["state"] == "cancelled"
        assert api.get(f"{JOBS}/{'0' * 32}/metrics?follow=true").status_code == 404
    with ExitStack() as slots:
        for _ in range(MOST_FOLLOWERS):
            slots.enter_context(state.follower_slot())
        answer = api.get(path)
        assert refused(answer)[:2] == (429, "rate_limit_exceeded")
        assert int(answer.headers["retry-after"]) >= 1
        assert api.get(f"{JOBS}/{job}/metrics").is_success
    assert api.get(path).is_success


def test_whoever_follows_a_job_is_let_go_when_the_server_stops(
    api: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with transaction() as session:
        job, _ = running(session)

    async def meanwhile(_: float) -> None:
        api.app.state.workbench.close()  # type: ignore[attr-defined]  # as the server does

    monkeypatch.setattr(routes.asyncio, "sleep", meanwhile)
    path = f"{JOBS}/{job}/metrics?follow=true"
    assert events(api.get(path).text)[-1]["error"]["code"] == "service_unavailable"
    assert refused(api.get(path))[:2] == (503, "service_unavailable")


@pytest.mark.parametrize("path", ["", "/log", "/metrics", "/metrics?follow=true"])
def test_a_missing_job_gives_404(api: TestClient, path: str) -> None:
    assert refused(api.get(f"{JOBS}/{'0' * 32}{path}"))[:2] == (404, "job_not_found")
    assert refused(api.get("/v1/workbench/experts/nobody"))[:2] == (404, "expert_not_found")


@pytest.mark.parametrize(
    ("spec", "status", "part"),
    [
        ({"kind": "no-such-kind"}, 400, "no-such-kind"),
        ({}, 400, "kind"),
        ({"kind": "evaluate", "mixture": "m", "shape": 3}, 400, "spec.evaluate.shape"),
        ({"kind": "make-mixture", "name": "m", "experts": ["\ud800"]}, 400, "Unicode"),
        ({"kind": "evaluate", "mixture": "nobody"}, 422, "“nobody”"),
    ],
)
def test_a_spec_that_cannot_work_leaves_no_job(api: TestClient, spec: dict[str, Any], status: int, part: str) -> None:
    body = json.dumps({"spec": spec})
    answer = refused(api.post(JOBS, content=body, headers={"content-type": "application/json"}))

    assert answer[0] == status
    assert part in answer[2]
    assert api.get(JOBS).json()["data"] == []


@pytest.mark.parametrize(
    "spec",
    [
        {"kind": "import-corpus", "name": "x", "path": "/etc/passwd"},
        {"kind": "import-corpus", "name": "x", "dataset": "/etc"},
        {"kind": "make-seed", "name": "x", "source": "folder", "location": "/etc"},
        {"kind": "classify", "mixture": "m", "path": "/etc"},
        {"kind": "export-expert", "expert": "e", "folder": "/tmp/elsewhere"},
    ],
    ids=lambda spec: spec["kind"],
)
def test_a_path_leads_only_into_the_folders_that_were_named(api: TestClient, spec: dict[str, Any]) -> None:
    status, code, message = refused(api.post(JOBS, json={"spec": spec}))

    assert (status, code) == (422, "bad_spec")
    assert "WORKBENCH_DATA_FOLDERS" in message
    assert api.get(JOBS).json()["data"] == []


def test_a_link_in_a_named_folder_leads_nowhere_else(api: TestClient, texts: Path) -> None:
    (texts / "link.txt").symlink_to("/etc/passwd")
    spec = {"kind": "import-corpus", "name": "x", "path": str(texts / "link.txt")}
    assert refused(api.post(JOBS, json={"spec": spec}))[:2] == (422, "bad_spec")


def test_the_schema_knows_every_kind_of_job(api: TestClient) -> None:
    schemas = api.get("/openapi.json").json()["components"]["schemas"]
    kinds = schemas["JobRequest"]["properties"]["spec"]["discriminator"]["mapping"]
    assert set(kinds) == set(known_kinds())
    assert "num_steps" in schemas["TrainingConfig"]["properties"]
