"""The removal view: costs as bars, certificates with their numbers, a button that asks for one."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from tests.ui.removals import certify, row
from tests.ui.studio.visits import answer_as, named, open_page, output, read, settled
from ui.client import Client
from workbench.analysis.changes.retrained_baselines import OF_BASE, sources_of
from workbench.job_records import jobs
from workbench.questions.removal import RemovalTable
from workbench.registry import mixtures, reports
from workbench.registry.database import transaction
from workbench.registry.experts import expert_row
from workbench.specs.requests import MixtureSpec

pytestmark = pytest.mark.usefixtures("filled_home")


def view() -> None:
    """A page with nothing but the view."""
    from ui.studio.experts.certificates import show_removal

    show_removal("first")


def table(*rows: dict[str, Any]) -> RemovalTable:
    """What removing each expert costs."""
    answer = {"mixture": "first", "split": "test", "evidence": "prefix", "num_blocks": 100, "rows": rows}
    return RemovalTable.model_validate(answer)


def costs(_self: Client, **job_spec: Any) -> RemovalTable:
    """An honest stand-in for the server: –Domain where a mixture was chosen for it."""
    never = 20.0 if "code" in job_spec["retrained"] else None
    return table(
        row("code", 10.0, 15.0, never, expert="first/code", not_removed=""),
        row("prose", None, None, None, why="No dev scores.", expert="first/prose", not_removed=""),
    )


@pytest.fixture
def without_code() -> None:
    """A mixture that has no expert of code, on a base that was trained on prose alone."""
    with transaction() as session:
        prose = expert_row(session, "first/prose")
        prose.config = {**prose.config, OF_BASE: [asdict(one) for one in sources_of(session, [str(prose.domain_id)])]}
        mixtures.create_mixture(session, MixtureSpec(name="no code", experts=["first/prose"]))


def test_the_costs_are_a_chart_with_words_and_what_is_missing_is_reported(
    monkeypatch: pytest.MonkeyPatch, without_code: None
) -> None:
    answer_as(monkeypatch, "removal", costs)
    app = settled(AppTest.from_function(view, default_timeout=120).run())
    assert not app.exception
    assert "Cost of removing an expert on its own domain" in output(app)
    assert "from 10.0 to 15.0 per token (+50.0 %)" in output(app)
    assert "prose: No dev scores." in output(app)
    assert "–Domain." not in output(app).split("The largest rise")[1].split("\n")[0]
    settled(app.multiselect[0].select("no code").run())
    assert "On 0 of 1 domains –Expert is at or above –Domain" in output(app)


def test_costs_that_nobody_knows_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = table(row("code", None, None, None, why="Not scored.", expert="first/code", not_removed=""))
    answer_as(monkeypatch, "removal", lambda _self, **_spec: unknown)
    app = settled(AppTest.from_function(view, default_timeout=120).run())
    assert "The costs are not known yet" in output(app)


def test_a_certificate_is_shown_on_the_card_of_its_expert_with_what_is_not_removed() -> None:
    with transaction() as session:
        certify(session, "first/code", "first")
        certify(session, "first/code", "first", ok=False)
    app = open_page("experts", experts__chosen=["first/code"])
    assert not app.exception
    assert "which text trained it is not recorded" in output(app) + "".join(one.value for one in app.info)
    headlines = [one.label.replace("\\", "") for one in app.expander if "Removal of" in one.label]
    assert [("NOT certified" in headline) for headline in headlines] == [True, False]
    assert "is bit-identical to the mixture that never loaded it" in output(app)
    assert "NOT certified: “first” without “first/code”" in output(app)
    assert "Extraction: how much of its training text comes back" in output(app)


def test_the_button_submits_a_certificate_with_what_was_chosen(without_code: None) -> None:
    app = open_page("experts", experts__chosen=["first/code"])
    assert "Its removal has not been certified yet" in output(app)
    app.selectbox(key="certify-removal.retrained.first/code").select("no code").run()
    named(app.button, "Certify the removal").click().run()
    assert not app.exception
    job = read(jobs.get_job, app.session_state["certify-removal.job"])
    assert (job.kind, job.spec["expert"], job.spec["mixture"]) == ("certify-removal", "first/code", "first")
    assert job.spec["retrained"] == "no code"
    assert job.title == "Certify removal first/code"
    assert any("workbench expert certify-removal first/code --mixture first" in one.value for one in app.code)


def test_before_an_expert_is_taken_out_its_certificate_is_offered() -> None:
    app = open_page("experts", experts__chosen=["first/code"])
    assert "To certify its removal" in output(app)
    with transaction() as session:
        certify(session, "first/code", "first")
        mixtures.remove_member(session, "first", "first/code")
    app = open_page("experts", experts__chosen=["first/code"])
    assert "1 certificate of its removal will stay" in output(app)
    assert "It is in no mixture" in output(app)


def test_reports_are_read_again_and_deleted() -> None:
    with transaction() as session:
        kept = certify(session, "first/code", "first")
        findings = {"domains": ["law", "sea"], "overlap": [[1.0, 0.25], [0.25, 1.0]]}
        reports.register_report(session, "overlap", "Bigram overlap", findings)
    app = open_page("reports")
    assert not app.exception
    app.selectbox(key="reports.chosen").select(kept.id).run()
    assert "Extraction: how much of its training text comes back" in output(app)
    named(app.button, "Delete for good").click().run()
    assert not app.exception
    assert "is deleted" in output(app)
    assert [one.kind for one in read(reports.list_reports)] == ["overlap"]
    assert "The share of frequent bigrams that two domains have in common" in output(app)
