"""The queue: every job, live, with the cause of a failure and what can be done about it."""

from __future__ import annotations

import streamlit as st

from ui.parts.job_view import show_job
from ui.parts.notices import empty
from ui.parts.rooms import CORPORA
from ui.parts.states import look_of
from ui.parts.tables import show_table, ticked
from ui.parts.words import clock, plain
from workbench.cards import JobCard
from workbench.database import reading
from workbench.services import jobs as rows

_STATES = ("queued", "running", "interrupted", "paused", "done", "failed", "cancelled")


def show() -> None:
    """Draws the page."""
    st.title("Jobs")
    with reading() as session:
        jobs = rows.list_jobs(session)
    if not jobs:
        empty("There is no job yet.", "Import some text: that is the first job.", CORPORA.script, "Import")
        return
    shown = _filtered(jobs)
    _show_table(shown)
    job_id = _chosen(shown)
    if job_id:
        show_job(job_id, key="jobs_page")


def _filtered(jobs: list[JobCard]) -> list[JobCard]:
    states = st.pills("State", _STATES, selection_mode="multi", key="job_states")
    return [job for job in jobs if not states or job.state in states]


def _show_table(jobs: list[JobCard]) -> None:
    def choose() -> None:
        places = ticked("jobs")
        if places and places[-1] < len(jobs):
            st.session_state["job"] = jobs[places[-1]].id

    show_table([_row(job) for job in jobs], "jobs", "All jobs, the newest first", on_select=choose)


def _row(job: JobCard) -> dict[str, object]:
    return {
        "job": job.title,
        "state": look_of(job).word,
        "progress (%)": round(job.progress * 100),
        "asked": clock(job.created_at),
        "finished": clock(job.finished_at) if job.finished_at else "",
        "cause of failure": job.error,
        "id": job.id,
    }


def _chosen(jobs: list[JobCard]) -> str | None:
    if not jobs:
        st.info(plain("No job is in one of these states."))
        return None
    titles = {job.id: f"{job.title} · {look_of(job).word} · {clock(job.created_at)}" for job in jobs}
    if st.session_state.get("job") not in titles:
        st.session_state["job"] = next((j.id for j in jobs if j.state == "running"), jobs[0].id)
    return st.selectbox("Job to look at", list(titles), key="job", format_func=titles.__getitem__)


if __name__ == "__main__":
    show()
