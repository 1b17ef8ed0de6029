"""The self-check's page: what to read, where it was measured, what failed and why, and a button that asks again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from engine.device import versions
from engine.selfcheck.law import LawVerdict
from workbench.job_records import jobs, leases
from workbench.kinds.analysis import SelfCheck
from workbench.registry.database import reading, transaction

STUDIO = str(Path(__file__).parents[3] / "ui" / "studio" / "app.py")
HOLDS = LawVerdict("L1", "a mixture with weight 1 on expert j is expert j", "bit-equal", True, 0.0, 0.5, 0.1)
FAILS = LawVerdict("L18", "cached decoding is plain decoding", "1e-5", False, 0.25, 0.5, 0.1, "It is <b>0.25</b>.")
pytestmark = pytest.mark.usefixtures("home")


def open_page() -> AppTest:
    return AppTest.from_file(STUDIO, default_timeout=120).run().switch_page("app_pages/selfcheck.py").run()


def shown(app: AppTest) -> str:
    kinds = (app.title, app.header, app.markdown, app.caption, app.error, app.warning, app.success)
    return "\n".join(one.value for kind in kinds for one in kind).replace("\\", "")


def table(app: AppTest) -> list[dict[str, str]]:
    return [
        {name: str(cell).replace("\\", "") for name, cell in row.items()}
        for row in app.table[0].value.to_dict("records")
    ]


def check(*checked: LawVerdict, state: str = "done", **changed: Any) -> str:
    """A check that ended so, in the registry."""
    outcome = {
        "ok": all(one.passed for one in checked),
        "failed": [one.law for one in checked if not one.passed],
        "seconds": 12.0,
        "device": "cpu (x86_64)",
        "versions": versions(),
        "laws": [vars(one) for one in checked],
    } | changed
    with transaction() as session:
        job_id = jobs.create_job(session, SelfCheck())
        fence = leases.claim(session, job_id, "test", 60.0, 3)
        assert fence is not None
        result = {"result": outcome} if state == "done" else {"error": "The disk broke.", "next_step": "Mend it."}
        leases.finish(session, job_id, fence, state, **result)
    return job_id


def test_nothing_checked_yet_says_so_and_the_button_requests_a_check() -> None:
    app = open_page()
    assert "Nothing has been checked on this machine yet." in shown(app)
    app.button(key="selfcheck.submit").click().run()
    assert not app.exception
    with reading() as session:
        (job,) = jobs.list_jobs(session)
    assert (job.kind, job.state) == ("selfcheck", "queued")
    assert app.button(key="selfcheck.submit").disabled


def test_laws_that_hold_are_reported_with_their_numbers_and_place() -> None:
    check(HOLDS)
    app = open_page()
    assert not app.exception
    assert "All 1 laws hold on this machine." in shown(app)
    assert f"on cpu (x86_64), python {versions()['python']}" in shown(app)
    (row,) = table(app)
    assert (row["law"], row["measured"], row["if broken"]) == ("L1", "0", "0.5")
    assert row["result"].startswith(":green[")
    assert " ok]" in row["result"]
    assert not app.warning


def test_a_law_that_fails_is_red_and_a_word_and_a_reason() -> None:
    check(HOLDS, FAILS)
    app = open_page()
    assert "1 of 2 laws does not hold on this machine: L18." in shown(app)
    assert "It is <b>0.25</b>." in app.error[0].value.replace("\\", "")
    assert "\\<b\\>" in app.error[0].value
    assert table(app)[1]["result"] == ":red[:material/error: **FAILED**]"


def test_the_newest_result_stays_while_a_later_check_has_failed() -> None:
    check(HOLDS)
    check(state="failed")
    app = open_page()
    assert "All 1 laws hold" in shown(app)
    assert "The disk broke." in shown(app)
    assert "Mend it." in shown(app)
    assert not app.button(key="selfcheck.submit").disabled


def test_other_versions_than_those_measured_are_pointed_out() -> None:
    check(HOLDS, versions={**versions(), "torch": "1.0"})
    app = open_page()
    assert "torch was 1.0 and is" in app.warning[0].value.replace("\\", "")
