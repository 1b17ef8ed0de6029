"""A job in a few lines: next to the button that submitted it, and below a finished one those that it starts."""

from __future__ import annotations

import streamlit as st

from ui.kinds.catalog import result_pages, result_sentence
from ui.present.jobs.failure_text import cause_of, next_step_of
from ui.present.jobs.job_status import is_over, percent_of, sentence_of, style_of
from ui.present.pages import JOBS
from ui.present.text.formatting import plain, plain_with_code
from ui.studio.shared.report_picture import show_report_picture
from ui.widgets.address import fragment, open_link
from ui.widgets.notices import explain_problems, show_problem
from workbench.answers.cards import JobCard
from workbench.job_records import jobs as rows
from workbench.registry.database import reading
from workbench.registry.reports import list_reports

LOOK_AGAIN = 1.0  # seconds


def show_line(job: JobCard) -> None:
    """A job in two lines: what it is, its state, how far it is."""
    look = style_of(job)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f"**{plain(job.title)}**")
        st.badge(look.word, icon=look.icon, color=look.colour)
    if not is_over(job):
        st.progress(job.progress, text=plain(f"{percent_of(job)} % · {sentence_of(job)}"))


def show_what_follows(job: JobCard, key: str) -> bool:
    """The jobs that started after a finished one, live until they end, and the pictures of all their reports.

    Returns whether there is any of them.
    """
    with reading() as session:
        after = rows.jobs_after(session, job.id)
        reports = list_reports(session, job_ids=[job.id])
    is_live = not all(map(is_over, after))
    (fragment(run_every=LOOK_AGAIN)(_draw_sequel) if is_live else _draw_sequel)(job.id, key, is_live)
    return bool(after or reports)


@explain_problems()
def _draw_sequel(job_id: str, key: str, is_live: bool) -> None:
    with reading() as session:
        after = rows.jobs_after(session, job_id)
        reports = list_reports(session, job_ids=[job_id, *(one.id for one in after)])
    if is_live and all(map(is_over, after)):
        st.rerun()  # the end of the last redraws the page
    for report in reports:
        show_report_picture(report, key)
    for one in after:
        with st.container(border=True):
            _show_with_result(one, f"{key}_{one.id}")


def show_outcome(job_id: str, key: str) -> None:
    """A submitted job in its line, live, for next to the button that submitted it."""
    with reading() as session:
        is_live = not is_over(rows.get_job(session, job_id))
    (fragment(run_every=LOOK_AGAIN)(_draw_outcome) if is_live else _draw_outcome)(job_id, key)


@explain_problems()
def _draw_outcome(job_id: str, key: str) -> None:
    with reading() as session:
        job = rows.get_job(session, job_id)
    with st.container(border=True):
        _show_with_result(job, f"{key}_outcome")
        if job.error:
            show_problem(plain_with_code(cause_of(job)), next_step_of(job))


def _show_with_result(job: JobCard, key: str) -> None:
    show_line(job)
    if sentence := result_sentence(job):
        st.markdown(plain(sentence))
    with st.container(horizontal=True):
        open_link(JOBS, "See the job", {"job": job.id}, key=f"{key}_job")
        for number, result in enumerate(result_pages(job)):
            open_link(result.page, result.label, result.state, key=f"{key}_{number}")
