"""GPUs as a user sees them: workbench devices, the list of jobs, HTTP and the page Jobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from engine.device import Gpu
from tests.ui.studio.visits import open_page
from ui.api.app import create_app
from ui.cli.app import main
from ui.present.jobs.job_status import describe_coming_job, gpu_row, sentence_of
from workbench.answers.cards import DeviceCard, DeviceHolder
from workbench.job_records import devices, jobs, leases
from workbench.job_records.devices import DeviceNeed, DevicePool
from workbench.kinds.analysis import Evaluate
from workbench.registry.database import transaction
from workbench.settings import Settings, get_settings
from workbench.store.artifacts import register_artifact
from workbench.store.storage import get_storage

REASON = "Waits for a GPU: 1 of 1 is in use by “Evaluate duo”."


@pytest.fixture
def waiting(home: Path) -> str:
    """The id of a job that waits for the only GPU, which another job has leased and an API server shares."""
    assert home
    with transaction() as session:
        devices.register(session, "ada", "worker", [Gpu("uuid", "0", "H100", 80 << 30)], 600)
        devices.register_tenant(session, "ada", "uuid", "http://127.0.0.1:8000", most_bytes=6 << 30, seconds=600)
        running, queued = (jobs.create_job(session, Evaluate(mixture=name)) for name in ("duo", "trio"))
        fence = leases.claim(session, running, "worker", 600, 3)
        assert fence is not None
        devices.lease(session, running, fence, DevicePool("ada", ("uuid",)), DeviceNeed(1))
        return queued


def test_the_command_lists_gpus_with_their_jobs_and_servers(waiting: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices"]) == 0
    table = capsys.readouterr().out
    for words in ("ada/0", "in use", "Evaluate duo", "http://127.0.0.1:8000", "H100"):
        assert words in table
    assert main(["devices", "--json"]) == 0
    (card,) = json.loads(capsys.readouterr().out)
    assert (card["host"], card["holders"][0]["title"], card["is_there"]) == ("ada", "Evaluate duo", True)


def test_a_gpu_that_is_shared_shows_each_job_with_its_share() -> None:
    holders = [DeviceHolder(job_id=letter * 32, title=f"Evaluate {letter}", share=0.25) for letter in "ab"]
    known = {"host": "ada", "number": "0", "uuid": "u", "name": "H100", "memory_bytes": 1, "worker": "w"}
    card = DeviceCard(**known, is_there=True, holders=holders)
    assert gpu_row(card)["Job"] == "Evaluate a (25%), Evaluate b (25%)"
    assert gpu_row(card)["Status"] == "50% in use"
    assert gpu_row(card.model_copy(update={"holders": holders * 2}))["Status"] == "in use"
    assert gpu_row(card.model_copy(update={"holders": []}))["Status"] == "free"


def test_without_gpus_the_command_says_so(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert home
    assert main(["devices"]) == 0
    assert capsys.readouterr().out == "No worker has registered a GPU: jobs compute on the CPU.\n"


def test_a_queued_job_says_in_list_and_card_why_it_waits(waiting: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["job", "list", "--json"]) == 0
    cards = {card["id"]: card for card in json.loads(capsys.readouterr().out)}
    assert cards.pop(waiting)["waits_for"] == REASON
    assert [card["gpus"] for card in cards.values()] == [["ada/0"]]
    assert main(["job", "show", waiting]) == 0
    assert REASON in " ".join(capsys.readouterr().out.split())
    with transaction() as session:
        card = jobs.get_job(session, waiting)
    assert sentence_of(card) == REASON
    assert describe_coming_job(card, [card]) == f"“Evaluate trio” is queued. {REASON}"


def test_gpus_over_http(waiting: str, home: Path) -> None:
    app = create_app(Settings(home=home), playground=False)
    with TestClient(app, base_url="http://127.0.0.1:8000") as api:
        (card,) = api.get("/v1/workbench/devices").json()["data"]
        assert card["tenants"] == [{"address": "http://127.0.0.1:8000", "most_bytes": 6 << 30}]
        assert api.get(f"/v1/workbench/jobs/{waiting}").json()["job"]["waits_for"] == REASON


def test_the_page_of_jobs_shows_the_gpus_and_the_reason(waiting: str) -> None:
    app = open_page("jobs_page", job=waiting)
    assert not app.exception
    tables = [table.value for table in app.dataframe]
    (gpus,) = [table for table in tables if "GPU" in table]
    assert gpus.to_dict("records") == [
        {
            "GPU": "ada/0",
            "Model": "H100",
            "Memory": "85.9 GB",
            "Job": "Evaluate duo",
            "API server": "http://127.0.0.1:8000, at most 6.4 GB",
            "Status": "in use",
        }
    ]
    (listed,) = [table for table in tables if "Waits for" in table]
    assert sorted(listed["Waits for"]) == ["", REASON]


def test_without_gpus_the_page_of_jobs_is_as_it_was(home: Path) -> None:
    assert home
    with transaction() as session:
        jobs.create_job(session, Evaluate(mixture="duo"))
    tables = [table.value for table in open_page("jobs_page").dataframe]
    assert [name for table in tables for name in table if name in ("GPU", "Waits for")] == []


def test_artifacts_from_before_there_was_a_shared_store_are_uploaded(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert home
    assert main(["registry", "upload"]) == 2
    assert "There is no shared store." in capsys.readouterr().err
    id, without_row = "a" * 32, "b" * 32
    for one in (id, without_row):
        with get_storage().new(one) as folder:
            (folder / "weights").write_text("w")
    with transaction() as session:
        register_artifact(session, get_storage(), id, "thing")
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setenv("WORKBENCH_STORE", f"file://{shared}")
    get_settings.cache_clear()
    assert main(["registry", "upload"]) == 0
    assert capsys.readouterr().out == f"Uploaded 1 artifact to file://{shared}.\n"
    assert (shared / "artifacts" / id / "weights").read_text() == "w"
    assert not (shared / "artifacts" / without_row).exists()
