"""Importing in the studio: from every place, with all complaints at once, and a report of what was refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from tests.ui.studio.visits import named, open_page, output, read
from ui.studio.forms.import_form import LOCAL_PATH
from workbench.answers.cards import Failure
from workbench.job_records import jobs as rows
from workbench.job_records import leases
from workbench.kinds.data import ImportCorpus
from workbench.registry.database import transaction
from workbench.schema.job_states import Ending

pytestmark = pytest.mark.usefixtures("filled_home", "folders_named")


@pytest.mark.parametrize(
    "place", ["Files on this machine", "Upload files", "Found on this machine", "Hugging Face data set"]
)
def test_text_can_come_from_every_place(place: str) -> None:
    app = open_page("corpora", part="Import text", import__where=place)
    assert not app.exception
    assert not app.error


def test_an_empty_import_form_says_all_that_is_missing() -> None:
    app = open_page("corpora", part="Import text", import__where=LOCAL_PATH)
    named(app.button, "Import the text").click().run()
    complaint = app.error[0].value.replace("\\", "")
    assert "path: give the path of a file or a folder." in complaint
    assert "name: a name must have 1 to 80 characters" in complaint
    assert "spec:" not in complaint


def test_an_import_from_a_path_is_requested_by_its_full_path(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("A text.", encoding="utf-8")
    app = open_page("corpora", part="Import text", import__where=LOCAL_PATH)
    app.text_input(key="import.path").set_value(str(tmp_path / "x.txt")).run()
    app.text_input(key="import-corpus.name").set_value("x").run()
    named(app.button, "Import the text").click().run()
    job = read(rows.get_job, app.session_state["import-corpus.job"])
    assert (job.spec["path"], job.spec["dataset"], job.spec["local_source"]) == (str(tmp_path / "x.txt"), "", "")


@pytest.mark.parametrize("state", ["failed", "paused"])
def test_the_form_names_the_state_of_its_last_job(tmp_path: Path, state: Ending) -> None:
    (tmp_path / "x.txt").write_text("A text.", encoding="utf-8")
    app = open_page("corpora", part="Import text", import__where=LOCAL_PATH)
    app.text_input(key="import.path").set_value(str(tmp_path / "x.txt")).run()
    named(app.button, "Import the text").click().run()
    assert states(app) == ["queued"] * 2  # at the button, and on the card beneath
    job_id = app.session_state["import-corpus.job"]
    with transaction() as session:
        fence = leases.claim(session, job_id, "test", 600.0, 3)
        assert fence is not None
        leases.finish(session, job_id, fence, state, error="The disk is full.")
    app.run()
    assert states(app) == [state] * 2


def states(app: AppTest) -> list[str]:
    """The state of a job wherever the page shows it."""
    return re.findall(r"-badge\[:material/\w+: (\w+)\]", output(app))


def test_a_path_that_leads_nowhere_leaves_no_job_behind(tmp_path: Path) -> None:
    app = open_page("corpora", part="Import text", import__where=LOCAL_PATH)
    app.text_input(key="import.path").set_value(f"{tmp_path}/where.txt").run()
    named(app.button, "Import the text").click().run()
    assert f"no file or folder at {tmp_path}/where.txt" in app.error[0].value.replace("\\", "")
    assert "import-corpus.job" not in app.session_state


def test_what_was_refused_is_reported_with_its_place() -> None:
    app = open_page("corpora", part="Imports & what was refused")
    assert "Left out: 1 for other reasons; 2 duplicates." in output(app)  # an earlier version counted no reasons
    assert "Anonymized: email 3, phone number 1,200." in output(app)
    assert any("UTF-8" in str(table.value.to_dict()) for table in app.dataframe)


def test_a_refused_import_is_reported_where_one_looks_for_it() -> None:
    with transaction() as session:
        job_id = rows.create_job(session, ImportCorpus(name="bad", path="/data/bad.jsonl"))
        fence = leases.claim(session, job_id, "test", 60.0, 3)
        assert fence is not None
        leases.finish(
            session,
            job_id,
            fence,
            "failed",
            error="bad.jsonl, line 2: not JSON.",
            next_step="Mend it.",
            failure=Failure(code="BadRecord", line=2),
        )
    app = open_page("corpora", part="Imports & what was refused")
    assert "bad.jsonl, line 2: not JSON." in output(app)
    assert "leave broken records out" in output(app)


def test_a_name_is_proposed_from_the_file_until_one_is_written() -> None:
    app = open_page("corpora", part="Import text", import__where=LOCAL_PATH)
    app.text_input(key="import.path").set_value("/data/my poems.jsonl.gz").run()
    assert app.text_input(key="import-corpus.name").value == "my poems"
    app.text_input(key="import-corpus.name").set_value("verse").run()
    app.text_input(key="import.path").set_value("/data/other.txt").run()
    assert app.text_input(key="import-corpus.name").value == "verse"
