"""The page of replications: asked for by one click, followed while it runs, read claim by claim."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from jobs.queue.submit import run_now
from studies.tests.conftest import write_texts
from tests.ui.studio.test_action_twins import STREAMLIT, calls_in, is_command, label_of
from tests.ui.studio.test_studio_pages import complaints, output
from tests.ui.studio.visits import open_page
from ui.cli.app import CommandTable
from workbench.job_records import jobs, leases
from workbench.registry.database import reading, transaction
from workbench.settings import get_settings
from workbench_studies.core.spec import SEEDS, Replicate
from workbench_studies.front.screens import PAGE
from workbench_studies.papers.catalog import plan
from workbench_studies.running.submission import new_spec, submit_replication

STUDIO = str(Path(__file__).parents[2] / "ui" / "studio" / "app.py")
pytestmark = pytest.mark.usefixtures("home", "folders_named")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_texts(tmp_path / "text", "train/law", "train/<b>sea", "novel/poems")


@pytest.fixture
def job_spec(folder: Path) -> Replicate:
    return new_spec("demix", "rep", "smoke", 1, folder=folder)


def test_nothing_reproduced_yet_offers_the_form_and_one_click_submits_all_jobs(folder: Path) -> None:
    app = open_page(PAGE.script, replication__size="smoke")
    assert "No paper has been reproduced here yet." in output(app)
    app.text_input(key="replication.folder").set_value(str(folder)).run()
    assert f"workbench replicate demix {folder} --size smoke --seeds 5 --name demix-smoke" in app.code[0].value
    app.button(key="replication.submit").click().run()
    assert not complaints(app)
    with reading() as session:
        assert len(jobs.list_jobs(session)) == len(
            plan(new_spec("demix", "demix-smoke", "smoke", SEEDS, folder=folder))
        )
    assert "0 of " in output(app)


def test_another_paper_has_its_sizes_its_name_and_its_command(folder: Path) -> None:
    app = open_page(PAGE.script, replication__paper="cbtm", replication__size="smoke")
    app.text_input(key="replication.folder").set_value(str(folder)).run()
    assert f"workbench replicate cbtm {folder} --size smoke --seeds 5 --name cbtm-smoke" in app.code[0].value
    assert any("up to 4 clusters" in option for option in app.selectbox(key="replication.size").options)
    app.button(key="replication.submit").click().run()
    assert not complaints(app)
    with reading() as session:
        assert len(jobs.list_jobs(session, limit=500)) == len(
            plan(new_spec("cbtm", "cbtm-smoke", "smoke", SEEDS, folder=folder))
        )
    assert "C-BTM, smoke" in output(app)


def test_a_path_that_is_no_folder_is_refused_beside_its_field(tmp_path: Path) -> None:
    app = open_page(PAGE.script, replication__folder=str(tmp_path / "none"))
    app.button(key="replication.submit").click().run()
    assert "There is no file or folder at this path" in app.error[0].value.replace("\\", "")
    app.text_input(key="replication.folder").set_value("").run()
    app.button(key="replication.submit").click().run()
    assert "give the path of a folder" in app.error[0].value.replace("\\", "")


def test_its_jobs_are_followed_and_a_failure_is_reported_with_the_next_step(job_spec: Replicate) -> None:
    first, *_ = submit_replication(job_spec)
    app = open_page(PAGE.script)
    assert f"0 of {len(plan(job_spec))} jobs done" in output(app)
    assert "rep: import" in output(app)
    with transaction() as session:
        fence = leases.claim(session, first, "test", 60.0, 3)
        assert fence is not None
        leases.finish(session, first, fence, "failed", error="The disk broke.", next_step="Mend it.")
    app = open_page(PAGE.script)
    assert "The disk broke." in output(app)
    app.button(key="replication.go_on").click().run()
    with reading() as session:
        assert jobs.get_job(session, first).state == "queued"


def test_a_report_is_shown_with_its_marks_and_can_be_taken_along(job_spec: Replicate) -> None:
    submit_replication(job_spec)
    for _ in run_now(job_spec.model_copy(update={"partial": True}))[1]:
        pass
    app = open_page(PAGE.script)
    assert not complaints(app)
    assert "0 of" in app.header[0].value.replace("\\", "")
    claims = app.dataframe[0].value
    assert list(claims)[:4] == ["where", "claim", "mark", "why"]  # before what may lie beyond the edge
    assert set(claims["mark"]) == {"not testable here"}
    assert "18.4 < 20.6" in set(claims["paper"])
    assert {one.label for one in app.get("download_button")} >= {"Report (HTML)", "Markdown"}


def test_a_number_of_seeds_out_of_its_range_is_named_until_it_is_corrected() -> None:
    page = open_page(PAGE.script)
    page.number_input(key="replication.seeds").set_value(21).run()
    [fault] = page.error
    assert fault.value.replace("\\", "") == "Seeds must be a whole number from 1 to 20, not 21."
    assert page.button(key="replication.submit").disabled
    page.number_input(key="replication.seeds").set_value(20).run()
    assert not page.error
    assert not page.button(key="replication.submit").disabled


@pytest.mark.parametrize("folder", ["private.txt", "desk/../private.txt", "desk"])
def test_a_folder_that_leads_out_of_those_that_the_owner_named_is_refused(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "desk" / "train").mkdir(parents=True)
    (tmp_path / "desk" / "novel").symlink_to(tmp_path)
    monkeypatch.setenv("WORKBENCH_DATA_FOLDERS", str(tmp_path / "desk"))
    get_settings.cache_clear()
    page = open_page(PAGE.script, replication__folder=str(tmp_path / folder))
    page.button(key="replication.submit").click().run()
    assert "is outside the folders that the studio may read" in page.error[0].value.replace("\\", "")


def test_every_button_of_the_page_has_a_command_and_is_disabled_for_a_viewer() -> None:
    calls = {label_of(call): call for call in calls_in(Path(PAGE.script).read_text("utf-8"), STREAMLIT)}
    commands = {"Reproduce {…}": "demix", "Resume": "demix", "Write a partial report": "report", "label": "show"}
    assert calls.keys() == commands.keys()
    assert {is_command(CommandTable(), f"replicate {command}") for command in commands.values()} == {True}
    changing = [call for label, call in calls.items() if label != "label"]  # that one only downloads
    assert all(any("cannot_change()" in ast.unparse(keyword.value) for keyword in call.keywords) for call in changing)
