"""The overview: what exists, which jobs run, health and next steps."""

from __future__ import annotations

import time
from collections.abc import Sequence

import streamlit as st

from ui.present.failure_text import cause_of
from ui.present.job_status import StateStyle, style_of
from ui.present.next_steps import Holdings, suggestions
from ui.present.pages import CORPORA, EXPERTS, JOBS, MIXTURES, OVERVIEW, TRAIN
from ui.present.text.formatting import ago, plain, pluralize, spoken
from ui.studio.job_views.job_view import show_line
from ui.studio.job_views.pending_jobs import unfinished_jobs
from ui.studio.shared.glossary import show_glossary
from ui.studio.shared.health import Sign, signs_of_health
from ui.widgets.notices import explained
from ui.widgets.page_head import show_head, show_next_step
from workbench.analysis import perplexity_tables
from workbench.job_records import jobs as rows
from workbench.registry import corpora, experts, mixtures, seeds
from workbench.registry.cards import JobCard
from workbench.registry.database import reading
from workbench.settings import get_settings

_LOOK_AGAIN = 2.0  # seconds
RECENT = 8
_OVER = ("done", "failed", "cancelled")
_UNFINISHED = ("queued", "running", "interrupted", "paused")
FRESH_SECONDS = 3600.0


def show() -> None:
    """Draws the page."""
    _live()
    show_glossary()


def holdings() -> Holdings:
    """How many of each thing there are."""
    with reading() as session:
        scores = perplexity_tables.list_evaluations(session)
        scored = {one.expert for one in scores}
        cards = experts.list_experts(session)
        return Holdings(
            domains=len(corpora.list_domains(session)),
            seeds=len(seeds.list_seeds(session)),
            experts=len(cards),
            mixtures=len(mixtures.list_mixtures(session)),
            evaluations=len(scores),
            unscored=[card.name for card in cards if card.mixtures and card.name not in scored],
            unfinished=unfinished_jobs(),
            failed=[job for job in rows.list_jobs(session, state="failed") if is_fresh_failure(job)],
        )


def is_fresh_failure(job: JobCard) -> bool:
    """Whether a failure is recent enough to be shown."""
    return job.state == "failed" and time.time() - (job.finished_at or 0) < FRESH_SECONDS


def _show_counts(have: Holdings) -> None:
    counts = (
        ("Domains", have.domains, CORPORA),
        ("Seed models", have.seeds, TRAIN),
        ("Experts", have.experts, EXPERTS),
        ("Mixtures", have.mixtures, MIXTURES),
    )
    for column, (label, count, page) in zip(st.columns(len(counts)), counts, strict=True):
        with column, st.container(border=True):
            st.metric(label, f"{count:,}")
            st.page_link(page.script, label=page.title, icon=":material/arrow_forward:")


def _show_suggestions(have: Holdings) -> None:
    st.subheader("What to try next")
    for suggestion in suggestions(have):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.page_link(
                suggestion.page.script,
                label=suggestion.page.title,
                icon=suggestion.page.icon,
                query_params=suggestion.query or None,
            )
            st.markdown(plain(suggestion.sentence))


@st.fragment(run_every=_LOOK_AGAIN)
def _live() -> None:
    right = show_head(OVERVIEW)
    with explained():
        have = holdings()
        show_next_step(right, suggestions(have)[0])
        _show_counts(have)
        _show_suggestions(have)
        with reading() as session:
            over = rows.list_jobs(session, state=_OVER)
            counts = rows.count_by_state(session)
        at_work, well = st.columns([3, 2], gap="large")
        with at_work:
            _show_unfinished(have.unfinished, sum(counts.get(state, 0) for state in _UNFINISHED))
            _show_recent(over)
        with well:
            _show_health(have.unfinished)


def _show_unfinished(unfinished: Sequence[JobCard], count: int) -> None:
    st.subheader("Running now")
    if not unfinished:
        st.caption("No job is running. Jobs appear here with their progress and ETA.")
    for job in unfinished[:RECENT]:
        with st.container(border=True):
            show_line(job)
    if unfinished:
        st.page_link(JOBS.script, label=f"See {pluralize(count, 'unfinished job')}", icon=JOBS.icon)


def _show_recent(over: list[JobCard]) -> None:
    st.subheader("Recent activity")
    if not over:
        st.caption("No job has ended yet.")
    for job in sorted(over, key=lambda job: -(job.finished_at or job.created_at))[:RECENT]:
        look = style_of(job)
        why = f" — {spoken(cause_of(job))}" if job.error else ""
        text = f"{plain(job.title)}, {ago(job.finished_at or job.created_at)}{why}"
        st.markdown(f":{look.colour}-badge[{look.icon} {look.word}] {text}")  # one text: a long one flows on


_LOOKS = {
    True: StateStyle("well", "green", ":material/check:"),
    False: StateStyle("not well", "red", ":material/error:"),
    None: StateStyle("unknown", "gray", ":material/help:"),
}


def _show_health(jobs: Sequence[JobCard]) -> None:
    st.subheader("Health")
    for sign in signs_of_health(get_settings(), jobs):
        _show_sign(sign)


def _show_sign(sign: Sign) -> None:
    look = _LOOKS[sign.is_well]
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"**{plain(sign.part)}**")
            st.badge(look.word, color=look.colour, icon=look.icon)
        next_step = f"  \n**Next step:** {spoken(sign.next_step)}" if sign.next_step else ""
        st.caption(spoken(sign.sentence) + next_step)


if __name__ == "__main__":
    show()
