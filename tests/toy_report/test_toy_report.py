"""A sort of report from another package: listed, printed and drawn, with no file changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from engine import plugins
from tests.ui.studio.visits import open_page, output
from ui.api.app import create_app
from ui.cli.app import main
from ui.reports.report_type import report_types
from workbench.registry.database import transaction
from workbench.registry.reports import register_report
from workbench.settings import Settings

FINDINGS: dict[str, Any] = {"domain": "law", "num_words": 1200}


@pytest.fixture
def report(home: Path) -> str:
    """The id of a stored report of the kind `words`."""
    assert home
    with transaction() as session:
        return register_report(session, "words", "Words of law", FINDINGS).id


@pytest.mark.usefixtures("installed")
def test_it_is_listed_and_printed_in_the_terminal(report: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "list", "--kind", "words"]) == 0
    assert "law has 1,200 words." in capsys.readouterr().out
    assert main(["report", "show", report]) == 0
    printed = capsys.readouterr().out.split()
    assert " ".join(printed).endswith("law has 1,200 words. Domain Words law 1,200")


@pytest.mark.usefixtures("installed", "home")
def test_a_report_that_its_package_cannot_read_hides_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    with transaction() as session:
        for number in (1200, "many"):
            register_report(session, "words", f"Words: {number}", {"domain": "law", "num_words": number})
    assert main(["report", "list", "--json"]) == 0
    assert main(["report", "list"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "law has 1,200 words." in printed
    assert "ValueError" in printed


@pytest.mark.usefixtures("installed")
def test_it_is_read_on_the_page_reports(report: str) -> None:
    page = open_page("reports")
    assert not page.exception
    assert "law has 1,200 words." in output(page)
    assert page.button_group(key="reports.kinds").options == ["Word counts"]
    assert page.dataframe[1].value.to_dict("records") == [{"domain": "law", "words": 1200}]


def test_it_is_listed_over_http(home: Path, report: str) -> None:
    with TestClient(create_app(Settings(home=home), playground=False), base_url="http://127.0.0.1:8000") as api:
        listed = api.get("/v1/workbench/reports?kind=words").json()["data"]
    assert [(one["id"], one["findings"]) for one in listed] == [(report, FINDINGS)]


def test_without_its_package_a_report_opens_with_its_json(report: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "words" not in report_types()
    assert main(["report", "show", report]) == 0
    printed = capsys.readouterr().out
    page = open_page("reports")
    for shown in (printed, output(page)):
        assert "No installed package knows reports of the kind “words”" in shown
    assert '"num_words": 1200' in printed
    assert '"num_words": 1200' in page.code[0].value


@pytest.mark.usefixtures("installed")
def test_a_report_without_what_its_sort_requires_opens_with_its_json(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with transaction() as session:
        old = register_report(session, "words", "Words of law", {"domain": "law"}).id
    assert main(["report", "show", old]) == 0
    assert "This report has no num_words" in capsys.readouterr().out


def test_all_sorts_of_the_workbench_can_be_drawn() -> None:
    for report in report_types().values():
        assert not report.draw or callable(plugins.load_object(report.draw))
        assert report.findings.__required_keys__
