"""What runs now, what has ended lately, and whether everything works, on the page Overview."""

from __future__ import annotations

import html
from collections.abc import Sequence

import streamlit as st

from ui.present.jobs.failure_text import cause_of
from ui.present.jobs.job_status import StateStyle, style_of
from ui.present.pages import JOBS
from ui.present.text.formatting import ago, plain, pluralize, spoken
from ui.serving.login import LOGOUT_PATH
from ui.studio.job_views.job_view import show_line
from ui.studio.shared.health import Sign
from workbench.access.home_token import needs_token
from workbench.answers.cards import JobCard
from workbench.settings import get_settings

MOST_RUNNING, MOST_RECENT = 4, 5
_RUNNING, _ENDED = "overview.running", "overview.ended"  # ids of jobs, and the words on those that ended last


def show_unfinished(unfinished: Sequence[JobCard], count: int) -> None:
    """The jobs at work with their progress and the time left, and those that wait as a number."""
    with st.container(border=True, key="at_work"):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.subheader("Running now", anchor=False, width="content")
            st.space("stretch")
            with st.container(width="content", key="small_link_jobs"):
                st.page_link(
                    JOBS.script, label=f"See {pluralize(count, 'unfinished job')}" if count else "all jobs", icon=""
                )
        if not unfinished:
            st.caption("No job is running. Jobs appear here with their progress and ETA.")
        for job in unfinished[:MOST_RUNNING]:
            show_line(job)


def show_recent(over: Sequence[JobCard]) -> None:
    """The jobs that ended last, a line each."""
    with st.container(border=True, key="recent"):
        st.subheader("Recent", anchor=False)
        if not over:
            st.caption("No job has ended yet.")
        for job in sorted(over, key=lambda job: -(job.finished_at or job.created_at))[:MOST_RECENT]:
            look = style_of(job)
            why = f" — {spoken(cause_of(job))}" if job.error else ""
            text = f"{plain(job.title)}, {ago(job.finished_at or job.created_at)}{why}"
            st.markdown(f":{look.colour}-badge[{look.icon} {look.word}] {text}")  # one text: a long one flows on


def announce_ends(unfinished: Sequence[JobCard], over: Sequence[JobCard]) -> None:
    """Reads aloud which jobs have ended while the page is open; for the eye they stand under “Recent”."""
    running: set[str] = st.session_state.get(_RUNNING, set())
    st.session_state[_RUNNING] = {job.id for job in unfinished}
    if ended := [f"{job.title}: {style_of(job).word}" for job in over if job.id in running]:
        st.session_state[_ENDED] = html.escape(". ".join(ended))
    if words := st.session_state.get(_ENDED):
        st.html(f'<p class="unseen" role="alert">{words}</p>')


_LOOKS = {
    True: StateStyle("well", "green", ":material/check:"),
    False: StateStyle("not well", "red", ":material/error:"),
    None: StateStyle("unknown", "gray", ":material/help:"),
}


def show_health(signs: Sequence[Sign]) -> None:
    """One word on all parts; it opens the details and, where there is a login, the way out."""
    ill = [sign for sign in signs if sign.is_well is False]
    label = "All processes run" if not ill else f"{pluralize(len(ill), 'part')} not well"
    look = _LOOKS[not ill]
    with st.popover(label, icon=look.icon, key="health", type="tertiary", width="content"):
        for sign in signs:
            _show_sign(sign)
        if needs_token(get_settings()):
            st.html(f'<a href="{LOGOUT_PATH}" target="_self" style="color: inherit">Log out</a>')


def _show_sign(sign: Sign) -> None:
    look = _LOOKS[sign.is_well]
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f"**{plain(sign.part)}**")
        st.badge(look.word, color=look.colour, icon=look.icon)
    next_step = f"  \n**Next step:** {spoken(sign.next_step)}" if sign.next_step else ""
    st.caption(spoken(sign.sentence) + next_step)
