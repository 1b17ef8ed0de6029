"""What unfinished jobs will make: an empty page shows the pending job instead of offering it again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from engine.text.split_names import HeldOutSplit
from ui.present.jobs.pending_jobs import by_turn, coming, coming_words
from ui.present.pages import EVALUATION, JOBS, TRAIN
from ui.present.text.formatting import plain
from ui.studio.job_views.job_view import show_line
from ui.widgets.notices import empty, explained
from workbench.answers.cards import JobCard
from workbench.job_records import jobs as rows
from workbench.registry.database import reading

_LOOK_AGAIN = 2.0  # seconds


def unfinished_jobs() -> list[JobCard]:
    """The unfinished jobs as they are now, by their turn."""
    with reading() as session:  # a list is cut at its old end, where those at work are
        at_work = rows.list_jobs(session, state=("running", "interrupted"))
        return by_turn([*at_work, *rows.list_jobs(session, state=("queued", "paused"))])


def empty_until(
    kind: str,
    why: str,
    next_step: str,
    page: str = "",
    label: str = "",
    chosen: Mapping[str, Any] | None = None,
    mixture: str | None = None,
    *,
    place: str = "",
) -> None:
    """An empty state; while a job of the kind that ends it, and of the mixture, is unfinished, that job instead."""
    if coming(unfinished_jobs(), kind, mixture) is None:
        empty(why, next_step, page, label, chosen, place=place)
    else:
        _live(kind, why, mixture)


def empty_until_scored(why: str, next_step: str, mixture: str | None, split: HeldOutSplit, *, place: str = "") -> None:
    """The same where scores are missing: the way leads to the form that makes those of this mixture and split."""
    chosen = {"train.what": EVALUATION, "evaluate.split": split} | ({"evaluate.mixture": mixture} if mixture else {})
    empty_until("evaluate", why, next_step, TRAIN.script, "Evaluate", chosen, mixture, place=place)


@st.fragment(run_every=_LOOK_AGAIN)
def _live(kind: str, why: str, mixture: str | None) -> None:
    with explained():
        jobs = unfinished_jobs()
        job = coming(jobs, kind, mixture)
        if job is None:
            st.rerun()
        with st.container(border=True):
            st.markdown(f"**{plain(why)}**  \n{plain('It is on its way: ' + coming_words(job, jobs))}")
            show_line(job)
            st.page_link(JOBS.script, label="See the jobs", icon=JOBS.icon)
