"""The studies of papers are another package: without it everything else works, and says what is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ui.cli.app import main
from workbench.registry.database import transaction
from workbench.registry.reports import register_report
from workbench.schema.job_tables import Job

HIDDEN = """
import importlib.metadata as metadata, sys
every = metadata.entry_points
metadata.entry_points = lambda **chosen: metadata.EntryPoints(
    point for point in every(**chosen) if not point.value.startswith("workbench_studies")
)
sys.modules["workbench_studies"] = None
"""
FINDINGS = {"name": "rep", "claims": [], "marks": {}, "jobs": []}


@pytest.fixture
def stored(home: Path) -> tuple[str, str]:
    """A job and a report of a replication, by their ids."""
    assert home
    spec = {"kind": "replicate-demix", "name": "rep", "domains": ["a", "b"], "novel": ["c"], "imports": []}
    with transaction() as session:
        session.add(Job(id="j" * 32, kind="replicate-demix", title="Report on rep", spec=spec, state="done"))
        return "j" * 32, register_report(session, "replication", "DEMix replicated: rep", FINDINGS).id


def without_studies(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A process of its own, in which the package is not installed."""
    command = [sys.executable, "-c", HIDDEN + code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


COMMAND = "from ui.cli.app import main; sys.exit(main(sys.argv[1:]))"


def test_the_command_line_has_every_other_command() -> None:
    shown = without_studies(COMMAND, "--help")
    assert shown.returncode == 0, shown.stderr
    assert "report" in shown.stdout
    assert "replicate" not in shown.stdout
    refused = without_studies(COMMAND, "replicate", "list")
    assert refused.returncode == 2
    assert "expert-workbench-studies" in refused.stderr


def test_an_installed_package_is_not_called_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replicat", "list"]) == 2
    assert "replicate" in (error := capsys.readouterr().err)
    assert "not installed" not in error


def test_a_home_with_replications_is_listed_and_names_the_package(stored: tuple[str, str]) -> None:
    job, report = stored
    for listed in (["job", "list"], ["report", "list"], ["job", "show", job]):
        shown = without_studies(COMMAND, *listed)
        assert shown.returncode == 0, shown.stderr
        assert "rep" in shown.stdout
    shown = without_studies(COMMAND, "report", "show", report)
    assert "expert-workbench-studies" in shown.stdout
    assert '"name": "rep"' in shown.stdout


API = """
import json
from starlette.testclient import TestClient
from ui.api.app import create_app
from workbench.settings import get_settings
with TestClient(create_app(get_settings(), playground=False), base_url="http://127.0.0.1:8000") as api:
    jobs = api.get("/v1/workbench/jobs").json()["data"]
    refused = api.post("/v1/workbench/jobs", json={"spec": jobs[0]["spec"]})
print(json.dumps([jobs[0]["title"], refused.status_code, refused.json()["error"]["message"]]))
"""


@pytest.mark.usefixtures("stored")
def test_the_api_lists_its_jobs_and_refuses_its_specs() -> None:
    shown = without_studies(API)
    assert shown.returncode == 0, shown.stderr
    title, status, message = json.loads(shown.stdout.splitlines()[-1])
    assert (title, status) == ("Report on rep", 400)
    assert "replicate-demix" in message


PAGES = """
from streamlit.testing.v1 import AppTest
import ui.studio.app
from ui.pages.catalog import all_pages
assert "replications" not in {page.address for page in all_pages()}
studio = AppTest.from_file(ui.studio.app.__file__, default_timeout=120).run()
for name in ("jobs_page", "reports"):
    page = studio.switch_page(f"app_pages/{name}.py").run()
    assert not page.exception, page.exception
print([one.value for kind in (page.markdown, page.caption, page.text) for one in kind])
"""


@pytest.mark.usefixtures("stored")
def test_the_studio_has_every_other_page_and_shows_the_values_of_its_reports() -> None:
    shown = without_studies(PAGES)
    assert shown.returncode == 0, shown.stderr
    assert "expert-workbench-studies" in shown.stdout.replace("\\", "")
