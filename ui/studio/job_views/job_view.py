"""The view of one job: live while it is unfinished, with its curves, its log and its actions."""

from __future__ import annotations

import json
from collections.abc import Callable

import streamlit as st

from jobs.attempt.job_log import is_newest_here, read_log
from jobs.queue import submit
from ui.kinds.job_results import result_places, result_sentence
from ui.present.jobs.failure_text import cause_of, next_step_of
from ui.present.jobs.job_status import cancel_words, is_over, percent_of, places_of, sentence_of, style_of
from ui.present.jobs.throughput import COUNTED_AS, throughput_words
from ui.present.text.formatting import ago, clock, duration, plain, spoken
from ui.studio.job_views.curves import show_curves
from ui.studio.job_views.forgetting import show_forgetting
from ui.studio.job_views.mode_gate_history import show_gates
from ui.studio.job_views.text_samples import show_samples
from ui.studio.training.clone_view import offer_clone
from ui.widgets.address import open_link
from ui.widgets.job_form import last_job
from ui.widgets.notices import announce, explained, keep, show_problem
from ui.widgets.parents import show_posterior
from ui.widgets.rights import cannot_change
from workbench.analysis.training_curves import training_baseline
from workbench.answers.cards import EventCard, JobCard, MetricPoint
from workbench.job_records import jobs as rows
from workbench.registry.database import reading
from workbench.schema.job_states import REQUIREMENTS
from workbench.settings import get_settings

LOG_BYTES = 8_000
_LOOK_AGAIN = 1.0  # seconds
_FETCH_AGAIN = 30.0
_DRAW_AGAIN = 5.0  # seconds: a curve that grew is a chart drawn again
_CARD_AND_CURVES = (4, 9)  # the widths: side by side they fit into the first screen, 900 pixels high


def show_job(job_id: str, key: str = "job") -> None:
    """A job's card beside its curves, then its details: live while it is unfinished; its end redraws the page."""
    with explained():
        job, has_curves = _read(job_id), bool(_points(job_id))
        draw_card, draw_curves, draw_rest = (
            (_draw_card, _draw_curves, _draw_rest) if is_over(job) else (_live_card, _live_curves, _live_rest)
        )
        with st.container(key=f"job_first_{key}"):
            left, right = st.columns(_CARD_AND_CURVES) if has_curves else (st.container(), st.container())
        with left:
            draw_card(job_id, key)
        with right:
            draw_curves(job_id, key, has_curves)
        draw_rest(job_id, key)


@st.fragment(run_every=_LOOK_AGAIN)
def _live_card(job_id: str, key: str) -> None:
    with explained():
        job = _read(job_id)
        if is_over(job):  # before it is drawn: a click on a button of a last look would be lost
            announce(f"{job.title}: {style_of(job).word}")
            st.rerun()
        _draw_card(job_id, key)


@st.fragment(run_every=_DRAW_AGAIN)
def _live_curves(job_id: str, key: str, has_curves: bool) -> None:
    with explained():
        if not has_curves and _points(job_id):
            st.rerun()  # the first points: the card moves beside them
        _draw_curves(job_id, key, has_curves)


@st.fragment(run_every=_DRAW_AGAIN)
def _live_rest(job_id: str, key: str) -> None:
    with explained():
        _draw_rest(job_id, key)


def show_line(job: JobCard) -> None:
    """A job in two lines: what it is, its state, how far it is."""
    look = style_of(job)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f"**{plain(job.title)}**")
        st.badge(look.word, icon=look.icon, color=look.colour)
    if not is_over(job):
        st.progress(job.progress, text=plain(f"{percent_of(job)} % · {sentence_of(job)}"))


def _read(job_id: str) -> JobCard:
    with reading() as session:
        return rows.get_job(session, job_id)


def _points(job_id: str) -> list[MetricPoint]:
    with reading() as session:
        return rows.metrics(session, job_id)


def _draw_card(job_id: str, key: str) -> None:
    with reading() as session:
        job, needed = rows.get_job(session, job_id), rows.newest_event(session, job_id, REQUIREMENTS)
    with st.container(border=True):
        show_line(job)
        st.caption(plain(_times(job)))
        if needed:
            st.caption(plain(needed.message))
        _show_ending(job)
        _show_actions(job, key)


def _draw_curves(job_id: str, key: str, has_curves: bool) -> None:
    if has_curves:
        with reading() as session:
            job, points = rows.get_job(session, job_id), rows.metrics(session, job_id)
            against = training_baseline(session, job)
        show_curves(points, f"{key}_curves", job.title, job.id, against)


def _draw_rest(job_id: str, key: str) -> None:
    with reading() as session:
        job = rows.get_job(session, job_id)
        happened, points = rows.events(session, job_id), rows.metrics(session, job_id)
    show_samples(job, happened, points, key)
    show_forgetting(job, points, key)
    show_gates(job, points, key)
    if job.state == "done":
        show_posterior(job.result, job.result.get("parent", ""), key)
    _show_details(job, happened)


def _times(job: JobCard) -> str:
    details = [f"created {ago(job.created_at)}", f"attempt {job.attempt}" if job.attempt else ""]
    if job.started_at and job.finished_at:
        details.append(f"took {duration(job.finished_at - job.started_at)}")
    return " · ".join(filter(None, [*details, f"id {job.id}"]))


def _show_ending(job: JobCard) -> None:
    if job.error:
        show_problem(spoken(cause_of(job)), next_step_of(job))
    if sentence := result_sentence(job):
        st.markdown(plain(sentence))
    if measured := job.result.get("throughput"):
        st.caption(plain(throughput_words(measured)), help=COUNTED_AS)
    with st.container(horizontal=True):
        for number, place in enumerate(result_places(job)):
            open_link(place.page, place.label, place.state, key=f"see_{job.id}_{number}")


def _cancel(job_id: str) -> None:
    submit.request_stop(job_id, "cancel")


def _pause(job_id: str) -> None:
    submit.request_stop(job_id, "pause")


_ACTIONS: dict[str, tuple[str, str, str, Callable[[str], object]]] = {
    "cancel": (
        "Cancel",
        ":material/stop:",
        "Stops it; the work so far is kept, and Retry resumes from there.",
        _cancel,
    ),
    "pause": ("Pause", ":material/pause:", "Stops at a checkpoint.", _pause),
    "resume": ("Resume", ":material/play_arrow:", "Resumes from its last checkpoint.", submit.resume),
    "retry": ("Retry", ":material/refresh:", "Starts again from its last checkpoint.", submit.retry),
}


def _show_actions(job: JobCard, key: str) -> None:
    with st.container(horizontal=True):
        for action, is_possible in places_of(job).items():
            if action == "cancel" and _needs_confirmation(job):
                _offer_cancel(job, key, is_possible)
                continue
            label, icon, help, act = _ACTIONS[action]
            if st.button(
                label, icon=icon, help=help, key=f"{key}_{job.id}_{action}", disabled=cannot_change() or not is_possible
            ):
                act(job.id)
                st.rerun()
        offer_clone(job)
        if is_over(job):
            _offer_deletion(job, key)


def _needs_confirmation(job: JobCard) -> bool:
    """Whether a cancel takes a second click: unless the visitor has just submitted this job and none waits for it."""
    return last_job(job.kind) != job.id or bool(_dependents(job))


def _dependents(job: JobCard) -> list[str]:
    with reading() as session:
        return rows.dependents(session, job.id)


def _offer_cancel(job: JobCard, key: str, is_possible: bool) -> None:
    is_refused = cannot_change() or not is_possible
    with st.popover("Cancel …", icon=":material/stop:", key=f"{key}_{job.id}_cancel_first", disabled=is_refused):
        st.markdown(plain(cancel_words(_dependents(job))))
        is_pressed = st.button(
            "Cancel the job",
            key=f"{key}_{job.id}_cancel",
            type="primary",
            disabled=cannot_change() or not is_possible,
        )
        if is_pressed:
            _cancel(job.id)
            st.rerun()


def _offer_deletion(job: JobCard, key: str) -> None:
    with st.popover("Delete …", icon=":material/delete:"):
        st.markdown("Deletes the job with its log and its checkpoints. What it made is kept.")
        if st.button("Delete for good", key=f"{key}_{job.id}_delete", type="primary", disabled=cannot_change()):
            with explained():
                _delete(job)


def _delete(job: JobCard) -> None:
    has_gone = submit.delete(job.id)
    if st.session_state.get(f"{job.kind}.job") == job.id:
        del st.session_state[f"{job.kind}.job"]  # the form that submitted it no longer shows it
    stays = "" if has_gone else " The job stays in the list, because something it made or a later job names it."
    keep(f"The log and the checkpoints of {job.title} are deleted.{stays}")
    st.rerun()


def _show_details(job: JobCard, happened: list[EventCard]) -> None:
    with st.expander("Events", icon=":material/history:"):
        for event in reversed(happened):
            st.text(f"{clock(event.at)}  attempt {event.attempt}  {event.message}")
    with st.expander("End of the log", icon=":material/terminal:"):
        st.code(_log_tail(job.id) or "The log is empty.", language=None)
    with st.expander("Spec and result", icon=":material/data_object:"):
        details = {"spec": job.spec, "result": job.result}
        st.code(json.dumps(details, indent=2, ensure_ascii=False), language="json")


def _log_tail(job_id: str) -> str:
    settings = get_settings()
    is_here = is_newest_here(settings, job_id)
    return read_log(settings, job_id, LOG_BYTES) if is_here else _log_tail_elsewhere(job_id)


@st.cache_data(ttl=_FETCH_AGAIN, show_spinner=False)
def _log_tail_elsewhere(job_id: str) -> str:
    """A log that another machine writes, from the shared store, which may be slow."""
    return read_log(get_settings(), job_id, LOG_BYTES)
