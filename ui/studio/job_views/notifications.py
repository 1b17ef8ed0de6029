"""Notifications of the browser at the ends of jobs, for as long as the studio stays open in it."""

from __future__ import annotations

import streamlit as st

from ui.present.jobs.job_status import is_over, style_of
from ui.widgets.elements.components import notify_button, show_notifications
from ui.widgets.notices import explain_problems
from workbench.answers.cards import JobCard
from workbench.job_records import jobs as rows
from workbench.registry.database import reading

_LOOK_AGAIN = 2.0  # seconds
_WANTED = "notifications.wanted"  # ids of the jobs whose ends are to be shown
_ENDS = "notifications.ends"  # those that were reached: the id of the notification, its title and its text


def offer_notification(job: JobCard, key: str) -> None:
    """A button that asks the browser for its permission, and takes the job's end among those that it shows."""
    wanted: set[str] = st.session_state.setdefault(_WANTED, set())
    is_wanted = notify_button(is_on=job.id in wanted, key=f"{key}_{job.id}_notify")
    if is_wanted is not None:
        (wanted.add if is_wanted else wanted.discard)(job.id)
        st.rerun()


def watch_ends() -> None:
    """Looks for the ends that were asked for, on whichever page; called once for each."""
    with st.container(key="notifications"):  # also without any: an element more moves what comes after it
        if st.session_state.get(_WANTED):
            st.fragment(_draw_ends, run_every=_LOOK_AGAIN)()
        else:
            _draw_ends()


@explain_problems()
def _draw_ends() -> None:
    wanted: set[str] = st.session_state.get(_WANTED, set())
    ends: list[dict[str, str]] = st.session_state.setdefault(_ENDS, [])
    if wanted:
        with reading() as session:
            jobs = rows.get_jobs(session, sorted(wanted))
        ends += [_end_of(job) for job in jobs if is_over(job)]
        st.session_state[_WANTED] = {job.id for job in jobs if not is_over(job)}
    if ends:
        show_notifications(ends)


def _end_of(job: JobCard) -> dict[str, str]:
    """What a notification of a job's end holds; a job that is retried ends again."""
    return {"id": f"{job.id} {job.finished_at}", "title": job.title, "body": f"Job {style_of(job).word}."}
