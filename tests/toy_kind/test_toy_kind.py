"""A kind of job from another package: submitted, run by a process of its own and shown, with no file changed."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.queue.submit import run_now, submit
from jobs.queue.tasks import run_jobs
from tests.toy_packages import uninstall
from tests.ui.studio.visits import named, open_page, output, read
from ui.cli.app import main
from ui.kinds.catalog import train_forms
from workbench.answers.cards import JobCard
from workbench.errors import BadSpecError
from workbench.job_records import jobs
from workbench.job_records.preconditions import validate_against_registry
from workbench.kinds.data import ImportCorpus
from workbench.kinds.kind import known_kinds, parse_spec
from workbench.registry.database import reading
from workbench.schema.tables import Report

FOLDER = str(Path(__file__).parent)
JOBS = "/v1/workbench/jobs"
SPEC = {"kind": "count-words", "domain": "law"}


@pytest.fixture
def law(home: Path, tmp_path: Path) -> None:
    """The domain `law`: 40 documents of four words."""
    assert home
    path = tmp_path / "law.jsonl"
    path.write_text("".join(json.dumps({"text": f"the court adjourned {i}"}) + "\n" for i in range(40)))
    for _ in run_now(ImportCorpus(name="law", path=str(path)))[1]:
        pass


SERVER = """
import json, sys
from starlette.testclient import TestClient
from ui.api.app import create_app
from workbench.settings import get_settings

with TestClient(create_app(get_settings(), playground=False), base_url="http://127.0.0.1:8000") as api:
    answers = [api.request(method, path, json=body) for method, path, body in json.load(sys.stdin)]
print(json.dumps([{"status": one.status_code, "body": one.json()} for one in answers]))
"""


def over_http(*requests: tuple[str, str, dict[str, Any] | None]) -> list[dict[str, Any]]:
    """The answers of a server that was started with the package installed: it knows kinds from its start on."""
    command = [sys.executable, "-c", SERVER]
    answer = subprocess.run(command, input=json.dumps(requests), capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    answers: list[dict[str, Any]] = json.loads(answer.stdout.splitlines()[-1])
    return answers


def run(spec: dict[str, Any]) -> JobCard:
    """The job of a spec, once a process of its own has run it."""
    job_id = submit(spec)
    for _ in run_jobs([job_id]):
        pass
    return read(jobs.get_job, job_id)


@pytest.mark.usefixtures("installed", "law")
def test_its_job_is_run_and_shown_in_the_terminal_and_the_studio(capsys: pytest.CaptureFixture[str]) -> None:
    card = run(SPEC)
    with reading() as session:
        findings = session.get_one(Report, card.result["report"]).findings
    assert (card.state, card.title) == ("done", "Count words")
    assert findings["num_words"] == card.result["num_words"] > 0
    assert card.result["num_words"] % 4 == 0
    assert main(["job", "show", card.id, "--json"]) in (0, None)
    assert json.loads(capsys.readouterr().out)["job"]["result"] == card.result
    page = open_page("jobs_page", job=card.id)
    assert f"law has {card.result['num_words']} words." in output(page)
    [link] = [one.proto for one in page.get("page_link") if one.proto.label == "See the report"]
    assert f"reports.chosen={card.result['report']}" in link.query_string
    assert "Words of law" in str(open_page("reports", reports__chosen=card.result["report"]))


@pytest.mark.usefixtures("installed", "law")
def test_it_is_submitted_checked_and_read_over_http() -> None:
    bad = ({**SPEC, "split": "all"}, {**SPEC, "domain": "nowhere"})
    *refused, accepted = over_http(*(("POST", JOBS, {"spec": spec}) for spec in (*bad, SPEC)))
    assert [one["status"] for one in refused] == [400, 422]
    assert "split" in refused[0]["body"]["error"]["message"]
    assert "nowhere" in refused[1]["body"]["error"]["message"]
    assert accepted["status"] == 202, accepted
    job_id = accepted["body"]["id"]
    for _ in run_jobs([job_id]):
        pass
    shown, listed = over_http(("GET", f"{JOBS}/{job_id}", None), ("GET", f"{JOBS}?kind=count-words", None))
    job = shown["body"]["job"]
    assert (job["title"], job["state"], job["spec"]) == ("Count words", "done", {**SPEC, "split": "train"})
    assert job["result"]["num_words"] > 0
    assert [one["id"] for one in listed["body"]["data"]] == [job_id]


@pytest.mark.usefixtures("installed", "law")
def test_its_form_on_the_page_train_submits_it() -> None:
    page = open_page("train", train__what="Word count")
    assert "How many words a domain has." in output(page)
    named(page.button, "Count the words").click().run()
    assert [card.spec for card in read(jobs.list_jobs) if card.kind == "count-words"] == [{**SPEC, "split": "train"}]


@pytest.mark.usefixtures("installed", "law")
def test_without_a_form_of_its_own_it_has_a_generic_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(known_kinds(), "count-words", replace(known_kinds()["count-words"], form=""))
    assert train_forms()["count-words"].about == "Count the words of a domain."
    page = open_page("train", train__what="Count words")
    named(page.button, "Submit").click().run()
    assert [card.spec["domain"] for card in read(jobs.list_jobs) if card.kind == "count-words"] == ["law"]


@pytest.mark.usefixtures("installed", "home")
def test_what_it_requires_is_checked_when_it_is_submitted() -> None:
    with pytest.raises(BadSpecError, match="law"), reading() as session:
        validate_against_registry(session, parse_spec(SPEC))


@pytest.mark.usefixtures("law")
def test_a_stored_job_of_it_stays_readable_after_it_is_uninstalled(request: pytest.FixtureRequest) -> None:
    request.getfixturevalue("installed")
    job_id = submit(SPEC)
    uninstall(Path(FOLDER))
    with pytest.raises(BadSpecError, match=r"is unknown: 'count-words'; choose one of average-experts, "):
        parse_spec(SPEC)
    submit({"kind": "measure-overlap"})  # although a job of an unknown kind is queued
    assert "Count words" in str(open_page("jobs_page", job=job_id))
