"""The newest self-check: every law with its deviation, where it was measured, and a button to check again."""

from __future__ import annotations

from typing import Any

import streamlit as st

from engine.device import versions
from jobs.queue.submit import submit
from ui.present.jobs.job_status import is_over
from ui.present.pages import SELFCHECK
from ui.present.text.formatting import ago, clock, plain
from ui.present.text.verdicts import number, place, result, since_then
from ui.studio.job_views.job_view import show_job
from ui.studio.shared.examples import show_example
from ui.widgets.charts_and_tables import offer_csv
from ui.widgets.notices import cannot_change, empty, explain_problems, show_problem
from ui.widgets.page_head import show_head
from workbench.answers.cards import JobCard
from workbench.job_records import jobs as rows
from workbench.kinds.analysis import SelfCheck, summary
from workbench.registry.database import reading

KIND = "selfcheck"
_SIGNS = {True: ":green[:material/check: {}]", False: ":red[:material/error: **{}**]"}


def show() -> None:
    """Draws the page."""
    show_head(SELFCHECK)
    with reading() as session:
        jobs = rows.list_jobs(session, kind=KIND)
    if not jobs:
        why = "Nothing has been checked on this machine yet."
        empty(why, "Check now: the laws of mixing, on a tiny model, in less than a minute.")
    done = next((job for job in jobs if job.state == "done"), None)
    if done:
        _show_title(done)
    _show_button(jobs)
    if jobs and jobs[0].state != "done":
        show_job(jobs[0].id, key=KIND)
    if done:
        _show_laws(done.result)
    if not jobs:
        show_example(SELFCHECK)
    st.caption("The same in a terminal: `workbench selfcheck`. It ends with code 1 when a law does not hold.")


def _show_button(jobs: list[JobCard]) -> None:
    is_running = bool(jobs) and not is_over(jobs[0])
    label = "Check again" if jobs else "Check now"
    if st.button(
        label, type="primary", icon=":material/rule:", key="selfcheck.submit", disabled=cannot_change() or is_running
    ):
        with explain_problems():
            submit(SelfCheck())
            st.rerun()


def _show_title(job: JobCard) -> None:
    findings = job.result
    st.header(plain(summary(findings)))
    at = job.finished_at or job.created_at
    st.caption(plain(f"{clock(at)}, {ago(at)}. {place(findings)}"))
    if changed := since_then(findings, versions()):
        st.warning(plain(changed), icon=":material/update:")


def _show_laws(findings: dict[str, Any]) -> None:
    for law in findings["laws"]:
        if not law["passed"]:
            show_problem(plain(f"{law['law']}, {law['sentence']}: {law['message']}"), _NEXT_STEP)
    st.table([_row(law) for law in findings["laws"]])
    st.caption(
        "“measured” is the largest deviation from the law over all gates and model families that were tried. "
        "The column “if broken” is the same measure where the law is broken on purpose: a check that does not see "
        "that counts as failed."
    )
    offer_csv(findings["laws"], "selfcheck", "selfcheck_download")


_NEXT_STEP = "Do not trust numbers made here until it holds: try other versions or another device, and report it."


def _row(law: dict[str, Any]) -> dict[str, str]:
    values = {
        "law": law["law"],
        "sentence": law["sentence"],
        "tolerance": law["tolerance"],
        "measured": number(law["measured"]),
        "if broken": number(law["control"]),
    }
    return {
        **{name: plain(value) for name, value in values.items()},
        "result": _SIGNS[law["passed"]].format(result(law["passed"])),
    }


if __name__ == "__main__":
    show()
