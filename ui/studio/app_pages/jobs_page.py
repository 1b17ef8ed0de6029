"""The queue: every job, live, with the cause of a failure and the next step."""

from __future__ import annotations

import streamlit as st

from ui.present.jobs.failure_text import cause_of
from ui.present.jobs.job_status import by_turn, eta_range, gpu_row, percent_of, style_of
from ui.present.next_steps import STEP_AFTER
from ui.present.pages import CORPORA, JOBS
from ui.present.text.formatting import clock, newest_of, plain, short
from ui.studio.job_views.job_view import show_job
from ui.widgets.address import choose_one, choose_some, fragment
from ui.widgets.charts_and_tables import rows_ticked, show_table
from ui.widgets.notices import empty, explain_problems, show_problem
from ui.widgets.page_head import show_head, show_next_step
from workbench.access.actor import Role, may
from workbench.access.audit import list_entries
from workbench.answers.cards import AuditCard, JobCard
from workbench.job_records import jobs as rows
from workbench.job_records.devices import list_devices
from workbench.registry.database import reading
from workbench.schema.job_states import SHOWN_STATES

_LOOK_AGAIN = 2.0  # seconds
_MOST_PIXELS = 218  # of the table: five rows, so that the card and the curves of a job stand in the first screen
_WIDTHS = {"ETA": 140}  # pixels: it holds nothing when the table is first drawn, and then `1 h 10 min to 2 h 5 min`
_SHOWN = "jobs_page.shown"  # the job whose card is shown below the list


def show() -> None:
    """Draws the page."""
    right = show_head(JOBS)
    with explain_problems(), reading() as session:
        if rows.count_by_state(session):
            show_next_step(right, STEP_AFTER[JOBS])
    st.session_state.pop(_SHOWN, None)
    _show_unknown()
    _live_list()
    if job_id := st.session_state.get(_SHOWN):
        show_job(job_id, key="jobs_page")
    _show_audit()


@fragment(run_every=_LOOK_AGAIN)
def _live_list() -> None:
    """The table and the choice, as the rows are now; another choice redraws the page with its card."""
    with explain_problems():
        job_id = _draw_list()
        if st.session_state.setdefault(_SHOWN, job_id) != job_id:
            st.rerun()


def _draw_list() -> str | None:
    with reading() as session:
        counts = rows.count_by_state(session)
    if not counts:
        empty("There is no job yet.", "Import some text: that is the first job.", CORPORA.script, "Import")
        return None
    left, right = st.columns([7, 5], vertical_alignment="bottom")
    states = (
        choose_some(left.pills, "Status", SHOWN_STATES, selection_mode="multi", key="job_states", wrap=True)
        or SHOWN_STATES
    )
    with reading() as session:
        shown = rows.list_jobs(session, state=states)
    with right:
        chosen = _choose_job(shown)
    _show_table(shown)
    if words := newest_of(len(shown), sum(counts.get(state, 0) for state in states), "job"):
        st.caption(words)
    _show_gpus()
    return chosen


def _show_table(jobs: list[JobCard]) -> None:
    def choose() -> None:
        places = rows_ticked("jobs")
        if places and places[-1] < len(jobs):
            st.session_state["job"] = jobs[places[-1]].id

    waiting = any(job.waits_for for job in jobs)
    table = [_row(job, waiting) for job in jobs]
    show_table(table, "jobs", "All jobs, the newest first", on_select=choose, max_height=_MOST_PIXELS, widths=_WIDTHS)


def _show_gpus() -> None:
    """The GPUs with who uses them; a workbench without any shows nothing."""
    with reading() as session:
        devices = list_devices(session)
    if devices:
        show_table([gpu_row(device) for device in devices], "gpus", "GPUs")


def _show_audit() -> None:
    """The newest entries of the audit log, for admins."""
    if not may(Role.ADMIN):
        return
    with reading() as session:
        entries = list_entries(session)
    if entries:
        with st.expander("Audit log: who submitted, added, changed and deleted what", icon=":material/history:"):
            show_table([_entry(entry) for entry in entries], "audit", "The newest entries of the audit log")


def _entry(entry: AuditCard) -> dict[str, object]:
    return {
        "Time": clock(entry.at),
        "User": entry.user,
        "Action": entry.action,
        "Kind": entry.kind,
        "Name": entry.name,
        "Details": entry.details,
    }


def _row(job: JobCard, waiting: bool) -> dict[str, object]:
    """A row of the table; what jobs wait for stands before the columns that a narrow window cuts off."""
    return {
        "Job": job.title,
        "Status": style_of(job).word,
        **({"Waits for": job.waits_for} if waiting else {}),
        "Progress (%)": percent_of(job),
        "ETA": eta_range(job),
        "Created": clock(job.created_at),
        "Finished": clock(job.finished_at) if job.finished_at else "",
        "Cause of failure": cause_of(job),
        "ID": short(job.id),
    }


def _choose_job(jobs: list[JobCard]) -> str | None:
    if not jobs:
        st.info(plain("No job is in one of these states."))
    jobs = _with_addressed(jobs)
    if not jobs:
        return None
    # A label holds no state: the browser sends labels back, and one that has changed since names no job any more.
    titles = {job.id: f"{job.title} · {clock(job.created_at)} · {job.id[:6]}" for job in jobs}
    usual = (by_turn(jobs) or jobs)[0].id  # the one at work, or next; else the newest
    return choose_one(st.selectbox, "Job", list(titles), usual=usual, key="job", format_func=titles.__getitem__)


def _with_addressed(jobs: list[JobCard]) -> list[JobCard]:
    """The jobs with the one in the address, even where its state has left the choice or newer jobs fill the list."""
    address = st.query_params.get("job", "")
    if not address or any(job.id == address for job in jobs):
        return jobs
    with reading() as session:
        return [*jobs, *rows.get_jobs(session, [address])]


def _show_unknown() -> None:
    with reading() as session:
        if (address := st.query_params.get("job")) and not rows.get_jobs(session, [address]):
            show_problem(f"There is no job with the id “{plain(address)}”.", "Choose one of the jobs below.")


if __name__ == "__main__":
    show()
