"""Removal from the command line: certificates are read, their making is offered, a broken one is a failure."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from tests.ui.removals import certify, findings, removed
from ui.cli.app import main
from ui.present.charts.colours import Looks
from ui.present.charts.curves_and_bars import removal_bars
from ui.present.text.reports import extraction_rows, perplexity_rows
from workbench.job_records import jobs, leases
from workbench.kinds.analysis import CertifyRemoval
from workbench.questions.removal import removal_reports
from workbench.registry import mixtures, reports
from workbench.registry.database import reading, transaction
from workbench.registry.experts import list_experts

pytestmark = pytest.mark.usefixtures("mixed")


def test_the_newest_certificate_is_printed_with_its_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    with transaction() as session:
        certify(session, "both/law", "both")
        certify(session, "both/law", "both")
    assert main(["expert", "removals", "both/law"]) == 0
    shown = capsys.readouterr().out
    assert "is bit-identical to the mixture that never loaded it (1,000 log-probabilities compared)" in shown
    assert "from 10.0 to 15.0 (+50.0 %); trained without the domain it is 20.0" in shown
    assert "25.0 % of the tokens are the true ones with it and 25.0 % without" in shown
    assert "poems: Its dev text is short." in shown
    assert "not unlearning" in shown
    assert "1 older" in shown
    assert main(["expert", "removals", "both/law", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 2


def test_certificates_of_a_deleted_expert_are_retrieved_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    with transaction() as session:
        certify(session, "both/law", "both")
        mixtures.remove_member(session, "both", "both/law")
    assert main(["expert", "delete", "both/law"]) == 0
    assert "certify-removal" not in capsys.readouterr().err
    assert main(["expert", "removals", "both/law"]) == 0
    assert "Removal of both/law from both" in capsys.readouterr().out


def test_before_an_expert_is_deleted_its_certificate_is_offered(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["expert", "delete", "both/law"]) == 2
    assert "workbench expert certify-removal both/law --mixture both" in capsys.readouterr().err
    with reading() as session:
        assert "both/law" in [expert.name for expert in list_experts(session)]
        assert removal_reports(session, "both/law") == []
    assert main(["expert", "removals", "both/law"]) == 0
    assert "The removal of “both/law” is not certified yet" in capsys.readouterr().out


def test_costs_that_are_not_known_say_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "removal", "both", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["domain"], row["with_expert"]) for row in rows] == [("code", None), ("law", None)]
    assert main(["evaluate", "removal", "both"]) == 0
    shown = capsys.readouterr().out
    assert "law: The test text is not scored under every expert that takes part." in shown
    assert "workbench evaluate run both" in shown
    assert "both/law: It is not known whether removing this expert is unlearning" in shown


@pytest.mark.parametrize(
    ("retrained", "shown"),
    [
        ("law", "“law” is not NAME=VALUE"),
        ("moon=both", "no domain of an expert in “both” called “moon”"),
        ("law=moon", "no mixture called “moon”"),
        ("law=both", "has seen it"),
    ],
)
def test_a_mixture_that_cannot_stand_for_no_domain_is_refused(
    retrained: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", "removal", "both", "--retrained", retrained]) == 2
    assert shown in capsys.readouterr().err


@pytest.mark.parametrize(("ok", "code"), [(True, 0), (False, 1)])
def test_a_certificate_that_does_not_hold_ends_with_code_1(
    ok: bool, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with transaction() as session:
        job_id = jobs.create_job(session, CertifyRemoval(expert="both/law", mixture="both"))
        fence = leases.claim(session, job_id, "test", 60.0, 3)
        assert fence is not None
        leases.finish(session, job_id, fence, "done", result={"ok": ok, "sentence": "It says so."})
    assert main(["job", "wait", job_id]) == code
    assert "It says so." in capsys.readouterr().out


def test_what_is_unknown_at_submission_is_refused_immediately(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["expert", "certify-removal", "nobody", "--mixture", "moon", "--retrained", "sun"]
    assert main(arguments) == 2
    shown = capsys.readouterr().err
    for name in ("“nobody”", "“moon”", "“sun”"):
        assert name in shown


def test_the_picture_says_how_near_a_removal_comes_to_never_having_seen_the_domain() -> None:
    rows = [
        removed("law", 10.0, 25.0, 20.0),
        removed("code", 8.0, 9.0, 12.0),
        removed("sea", 5.0, None, None, why="short"),
    ]
    picture = removal_bars(rows, Looks())
    assert picture is not None
    assert [bar.name for bar in picture.figure.data] == ["+Expert", "–Expert", "–Domain"]
    assert list(picture.figure.layout.xaxis.ticktext) == ["law", "code"]
    assert "The largest rise is on law, from 10.0 to 25.0 per token (+150.0 %)" in picture.description
    assert "On 1 of 2 domains –Expert is at or above –Domain" in picture.description
    assert [one["change (%)"] for one in picture.table] == [150.0, 12.5, None]
    assert removal_bars(rows[2:], Looks()) is None
    two = removal_bars([removed("law", 10.0, 25.0, None)], Looks())
    assert two is not None
    assert [bar.name for bar in two.figure.data] == ["+Expert", "–Expert"]


def test_rows_hold_every_measure_of_every_mixture() -> None:
    outcome = findings("both/law", "both", "law")
    rows = extraction_rows(outcome["extraction"])
    assert [row["mixture"] for row in rows] == ["+Expert", "–Expert"] * 3
    assert (rows[0]["mean"], rows[0]["change"]) == (0.25, None)
    assert (rows[1]["change"], rows[1]["change from"], rows[1]["change to"]) == (-0.125, -0.2, -0.05)
    assert "expert" not in perplexity_rows([removed("law", 10.0, 15.0, 20.0)])[0]


def test_reports_are_listed_read_and_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "list"]) == 0
    assert "There is no report" in capsys.readouterr().out
    with transaction() as session:
        kept = certify(session, "both/law", "both")
        other = reports.register_report(
            session,
            "overlap",
            "Bigram overlap of 2 domains",
            {"domains": ["law", "sea"], "overlap": [[1.0, 0.25], [0.25, 1.0]]},
        )
    assert main(["report", "list", "--kind", "removal", "--json"]) == 0
    assert [load["id"] for load in json.loads(capsys.readouterr().out)] == [kept.id]
    assert main(["report", "list"]) == 0
    shown = capsys.readouterr().out
    assert kept.id[:8] in shown
    assert "Bigram overlap of 2 domains" in shown
    assert main(["report", "show", kept.id[:8]]) == 0
    assert "is bit-identical to the mixture that never loaded it" in capsys.readouterr().out
    assert main(["report", "show", other.id]) == 0
    assert "workbench evaluate affinity" in capsys.readouterr().out
    assert main(["report", "show", kept.id, "--svg"]) == 0
    assert ElementTree.fromstring(capsys.readouterr().out).tag.endswith("svg")
    assert main(["report", "show", other.id, "--svg"]) == 2
    assert "has no picture" in capsys.readouterr().err
    assert main(["report", "delete", kept.id[:8]]) == 0
    with reading() as session:
        assert reports.list_reports(session) == [other]
    assert main(["report", "show", kept.id]) == 2
