"""Unfinished jobs, live: the one that will fill an empty page, and those of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from engine.text.split_names import HeldOutSplit
from jobs.queue.submit import submit
from ui.present.jobs.job_status import by_turn, coming, describe_coming_job, is_over
from ui.present.pages import EVALUATION, JOBS, TRAIN
from ui.present.text.formatting import duration, listed, plain, pluralize
from ui.studio.job_views.job_line import show_line
from ui.widgets.notices import cannot_change, empty, explain_problems, keep, show_problem
from workbench.analysis.missing_scores import scoring_seconds
from workbench.answers.cards import JobCard
from workbench.errors import NotFoundError
from workbench.formatting.shell_command import evaluate_command
from workbench.job_records import jobs as rows
from workbench.kinds.analysis import Evaluate
from workbench.registry.database import reading
from workbench.schema.job_states import UNSUCCESSFUL

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
    section: str = "",
) -> None:
    """An empty state; while a job of the kind that ends it, and of the mixture, is unfinished, that job instead."""
    if coming(unfinished_jobs(), kind, mixture) is None:
        empty(why, next_step, page, label, chosen, section=section)
    else:
        _live(kind, why, mixture)


def empty_until_trained(why: str, next_step: str) -> None:
    """The same where there is no expert yet: the way leads to the form that trains the first."""
    empty_until("train-joint", why, next_step, TRAIN.script, "Train")


def empty_until_scored(
    why: str, next_step: str, mixture: str | None, split: HeldOutSplit, *, section: str = ""
) -> None:
    """The same where scores are missing: the way leads to the form that makes those of this mixture and split."""
    chosen = {"train.what": EVALUATION, "evaluate.split": split} | ({"evaluate.mixture": mixture} if mixture else {})
    empty_until("evaluate", why, next_step, TRAIN.script, "Evaluate", chosen, mixture, section=section)


def offer_scoring(why: str, specs: Sequence[Evaluate], num_tokens: int, key: str) -> None:
    """Which scores are missing, and the button for the jobs that make them; those jobs, while one is unfinished."""
    mixtures, unfinished = list(dict.fromkeys(spec.mixture for spec in specs)), unfinished_jobs()
    scored_now = [name for name in mixtures if coming(unfinished, "evaluate", name) is not None]
    if scored_now:
        _live("evaluate", why, scored_now[0])
        return
    with reading() as session:
        seconds = scoring_seconds(session, num_tokens)
    takes = f" Scoring takes about {duration(seconds, to_minutes=True)} here." if seconds else ""
    st.warning(plain(f"{why}{takes}"))
    if st.button(
        "Score what is missing",
        icon=":material/send:",
        key=f"{key}.score",
        disabled=cannot_change(),
    ):
        with explain_problems():
            for spec in specs:
                submit(spec)
            verb = "job is" if len(specs) == 1 else "jobs are"
            keep(f"{len(specs)} evaluation {verb} queued for {listed(mixtures)}.")
            st.rerun()


def how_to_score(mixture: str | None, split: HeldOutSplit) -> str:
    """The next step where scores of a split are missing."""
    return f"Choose Evaluation on the page Train, or run `{evaluate_command(mixture or 'MIXTURE', split)}`."


def say_coming(kind: str, why: str, mixture: str) -> None:
    """That the unfinished job of a kind and a mixture will end an empty state; its progress stands elsewhere."""
    _live(kind, why, mixture, has_progress=False)


@st.fragment(run_every=_LOOK_AGAIN)
def _live(kind: str, why: str, mixture: str | None, *, has_progress: bool = True) -> None:
    with explain_problems():
        jobs = unfinished_jobs()
        job = coming(jobs, kind, mixture)
        if job is None:
            st.rerun()
        with st.container(border=has_progress):
            st.markdown(f"**{plain(why)}**  \n{plain('It is on its way: ' + describe_coming_job(job, jobs))}")
            if has_progress:
                show_line(job)
                st.page_link(JOBS.script, label="See the jobs", icon=JOBS.icon)


_SHOWN = 6  # jobs at work


def show_plan(key: str) -> None:
    """The jobs whose ids the session keeps under KEY.jobs, live; nothing of a single job, which has its own card."""
    ids: list[str] = st.session_state.get(f"{key}.jobs", [])
    if len(ids) > 1:
        _watch_plan(key, ids)


@st.fragment(run_every=_LOOK_AGAIN)
def _watch_plan(key: str, ids: Sequence[str]) -> None:
    with explain_problems():
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
