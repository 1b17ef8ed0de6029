"""The view of a plan of several jobs: how many are done, which run, which stopped, and why."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from ui.present.jobs.job_status import is_over
from ui.present.jobs.pending_jobs import by_turn
from ui.present.pages import JOBS
from ui.present.text.formatting import plain, pluralize
from ui.studio.job_views.job_view import show_line
from ui.widgets.notices import explained, show_problem
from workbench.answers.cards import JobCard
from workbench.errors import NotFoundError
from workbench.job_records import jobs as rows
from workbench.registry.database import reading
from workbench.schema.job_states import UNSUCCESSFUL

_LOOK_AGAIN = 2.0  # seconds
_SHOWN = 6  # jobs at work


def show_plan(key: str) -> None:
    """The jobs whose ids the session keeps under KEY.jobs, live; nothing of one alone, which has a card of its own."""
    ids: list[str] = st.session_state.get(f"{key}.jobs", [])
    if len(ids) > 1:
        _live(key, ids)


@st.fragment(run_every=_LOOK_AGAIN)
def _live(key: str, ids: Sequence[str]) -> None:
    with explained():
        jobs = _read(ids)
        done = sum(job.state == "done" for job in jobs)
        with st.container(border=True):
            st.progress(done / max(1, len(jobs)), text=plain(f"{done} of {pluralize(len(jobs), 'job')} done"))
            for job in by_turn(jobs)[:_SHOWN]:
                show_line(job)
            for job in jobs:
                if job.state in UNSUCCESSFUL:
                    show_problem(plain(f"{job.title}: {job.error or job.state}"), job.next_step or _GO_ON)
            st.page_link(JOBS.script, label="See the jobs", icon=JOBS.icon)
    _redraw_at_end(key, all(map(is_over, jobs)))


def _read(ids: Sequence[str]) -> list[JobCard]:
    """The jobs that have not been deleted since."""
    cards = []
    with reading() as session:
        for id in ids:
            try:
                cards.append(rows.get_job(session, id))
            except NotFoundError:
                continue
    return cards


def _redraw_at_end(key: str, is_ended: bool) -> None:
    """The page around is drawn once more when the last job has ended: then there is something new to see."""
    seen = f"{key}.ended"
    if st.session_state.setdefault(seen, is_ended) != is_ended:
        st.session_state[seen] = is_ended
        st.rerun()


_GO_ON = "Press the same button again: finished jobs are kept."
