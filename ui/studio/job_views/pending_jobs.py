"""What unfinished jobs will make: an empty page shows the pending job instead of offering it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from ui.present.job_status import is_over, time_left
from ui.present.pages import EVALUATION, JOBS, TRAIN
from ui.present.text.formatting import plain, pluralize
from ui.studio.job_views.job_view import show_line
from ui.studio.shared.notices import empty, explained
from workbench.job_records import jobs as rows
from workbench.registry.cards import JobCard
from workbench.registry.database import reading

_LOOK_AGAIN = 2.0  # seconds
_FIRST = ("running", "interrupted", "queued", "paused")  # what is at work stands before what waits


def by_turn(jobs: Sequence[JobCard]) -> list[JobCard]:
    """Unfinished jobs, running ones first, then the others by the time they were created."""
    unfinished = [job for job in jobs if not is_over(job)]
    return sorted(unfinished, key=lambda job: (_FIRST.index(job.state), job.created_at))


def coming(jobs: Sequence[JobCard], kind: str) -> JobCard | None:
    """The unfinished job of a kind whose turn is first; None when nothing of the kind is on its way."""
    return next((job for job in by_turn(jobs) if job.kind == kind), None)


def coming_words(job: JobCard, jobs: Sequence[JobCard]) -> str:
    """How far a job on its way is: `“Train” is running, about 3 min 20 s left.`"""
    if job.state == "paused":
        return f"“{job.title}” is paused: resume it."
    if job.state != "queued":
        left = f", {time_left(job)}" if job.eta_seconds is not None else ""
        return f"“{job.title}” is {job.state}{left}."
    before = by_turn(jobs).index(job)
    return f"“{job.title}” waits for its turn" + (f" behind {pluralize(before, 'job')}." if before else ".")


def unfinished_jobs() -> list[JobCard]:
    """The unfinished jobs as they are now, by their turn."""
    with reading() as session:  # a list is cut at its old end, where those at work are
        at_work = rows.list_jobs(session, state=("running", "interrupted"))
        return by_turn([*at_work, *rows.list_jobs(session, state=("queued", "paused"))])


def empty_until(
    kind: str, why: str, next_step: str, page: str = "", label: str = "", chosen: Mapping[str, Any] | None = None
) -> None:
    """An empty state; while a job of the kind that ends it is unfinished, that job instead of a next step."""
    if coming(unfinished_jobs(), kind) is None:
        empty(why, next_step, page, label, chosen)
    else:
        _live(kind, why)


def empty_until_scored(why: str, next_step: str, mixture: str | None, split: str) -> None:
    """The same where scores are missing: the way leads to the form that makes those of this mixture and split."""
    chosen = {"train.what": EVALUATION, "evaluate.split": split} | ({"evaluate.mixture": mixture} if mixture else {})
    empty_until("evaluate", why, next_step, TRAIN.script, "Evaluate", chosen)


@st.fragment(run_every=_LOOK_AGAIN)
def _live(kind: str, why: str) -> None:
    with explained():
        jobs = unfinished_jobs()
        job = coming(jobs, kind)
        if job is None:
            st.rerun()
        with st.container(border=True):
            st.markdown(f"**{plain(why)}**  \n{plain('It is on its way: ' + coming_words(job, jobs))}")
            show_line(job)
            st.page_link(JOBS.script, label="See the jobs", icon=JOBS.icon)
