"""The view of one job: live while it is unfinished, with its curves, its log and its actions; and below a form."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import streamlit as st

from jobs.attempt.job_log import is_newest_here, read_log
from jobs.queue import submit
from ui.kinds.catalog import command_of, result_pages, result_sentence
from ui.present.forms.questions import Offers
from ui.present.jobs.failure_text import cause_of, next_step_of
from ui.present.jobs.job_status import describe_cancel, is_over, places_of, style_of
from ui.present.jobs.throughput import COUNTED_AS, describe_throughput
from ui.present.text.formatting import ago, clock, duration, plain, plain_with_code
from ui.studio.job_views.job_line import LOOK_AGAIN, show_line, show_outcome, show_what_follows
from ui.studio.job_views.notifications import offer_notification
from ui.studio.job_views.training_charts import show_curves, show_forgetting, show_gates, show_samples
from ui.studio.training.clone_view import offer_clone
from ui.widgets.address import fragment, open_link
from ui.widgets.job_form import last_job, show_job_form
from ui.widgets.notices import announce, cannot_change, explain_problems, keep, show_problem
from ui.widgets.parents import show_posterior
from workbench.analysis.training_curves import training_baseline
from workbench.answers.cards import EventCard, JobCard
from workbench.job_records import jobs as rows
from workbench.registry.database import reading
from workbench.schema.job_states import REQUIREMENTS
from workbench.settings import get_settings


def show_form_and_job(kind: str, offers: Offers, label: str, **options: Any) -> None:
    """The form, with the options of `show_job_form`, its last job in a line at the button, and as a whole beneath."""
    show_job_form(kind, offers, label, command=command_of(kind), show_outcome=show_outcome, **options)
    show_last(kind)


def show_last(kind: str) -> None:
    """The job that this form submitted last, live."""
    if job_id := last_job(kind):
        show_job(job_id, key=f"{kind}_job")


LOG_BYTES = 8_000
_FETCH_AGAIN = 30.0
_DRAW_AGAIN = 5.0  # seconds: a curve that grew is a chart drawn again
_CARD_AND_CURVES = (4, 9)  # the widths: side by side they fit into the first screen, 900 pixels high


@explain_problems()
def show_job(job_id: str, key: str = "job") -> None:
    """A job's card next to its curves, then its details: live while it is unfinished; its end redraws the page."""
    with reading() as session:
        job, has_curves = rows.get_job(session, job_id), bool(rows.metrics(session, job_id))
    is_live = not is_over(job)

    def draw(part: Callable[..., None], seconds: float, *more: bool) -> None:
        (fragment(run_every=seconds)(part) if is_live else part)(job_id, key, *more)

    with st.container(key=f"job_first_{key}"):
        left, right = st.columns(_CARD_AND_CURVES) if has_curves else (st.container(), st.container())
    with left:
        draw(_draw_card, LOOK_AGAIN, is_live)
    with right:
        has_sequel = not is_live and show_what_follows(job, key)
    with st.container() if has_sequel else right:
        draw(_draw_curves, _DRAW_AGAIN, has_curves)
    draw(_draw_rest, _DRAW_AGAIN)


@explain_problems()
def _draw_card(job_id: str, key: str, is_live: bool) -> None:
    with reading() as session:
        job, needed = rows.get_job(session, job_id), rows.newest_event(session, job_id, REQUIREMENTS)
    if is_live and is_over(job):  # before it is drawn: a click on a button of a last look would be lost
        announce(f"{job.title}: {style_of(job).word}")
        st.rerun()
    with st.container(border=True):
        show_line(job)
        st.caption(plain(_times(job)))
        if needed:
            st.caption(plain(needed.message))
        _show_ending(job)
        _show_actions(job, key)
        if is_live:
            offer_notification(job, key)


@explain_problems()
def _draw_curves(job_id: str, key: str, has_curves: bool) -> None:
    with reading() as session:
        job, points = rows.get_job(session, job_id), rows.metrics(session, job_id)
        against = training_baseline(session, job) if has_curves else None
    if points and not has_curves:
        st.rerun()  # the first points: the card moves next to them
    if has_curves:
        show_curves(points, f"{key}_curves", job.title, job.id, against)


@explain_problems()
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
        show_problem(plain_with_code(cause_of(job)), next_step_of(job))
    if sentence := result_sentence(job):
        st.markdown(plain(sentence))
    if worse := job.result.get("worse"):
        st.warning(plain(worse), icon=":material/trending_down:")
    if measured := job.result.get("throughput"):
        st.caption(plain(describe_throughput(measured)), help=COUNTED_AS)
    with st.container(horizontal=True):
        for number, result in enumerate(result_pages(job)):
            open_link(result.page, result.label, result.state, key=f"see_{job.id}_{number}")


_ACTIONS: dict[str, tuple[str, str, str, Callable[[str], object]]] = {
    "cancel": (
        "Cancel",
        ":material/stop:",
        "Stops it; the work so far is kept, and Retry resumes from there.",
        partial(submit.request_stop, how="cancel"),
    ),
    "pause": ("Pause", ":material/pause:", "Stops at a checkpoint.", partial(submit.request_stop, how="pause")),
    "resume": ("Resume", ":material/play_arrow:", "Resumes from its last checkpoint.", submit.resume),
    "retry": ("Retry", ":material/refresh:", "Starts again from its last checkpoint.", submit.retry),
}


def _show_actions(job: JobCard, key: str) -> None:
    with st.container(horizontal=True):
        for action, is_possible in places_of(job).items():
            # unless the visitor has just submitted this job and none waits for it
            if action == "cancel" and (last_job(job.kind) != job.id or _dependents(job)):
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


def _dependents(job: JobCard) -> list[str]:
    with reading() as session:
        return rows.dependents(session, job.id)


def _offer_cancel(job: JobCard, key: str, is_possible: bool) -> None:
    is_refused = cannot_change() or not is_possible
    with st.popover("Cancel …", icon=":material/stop:", key=f"{key}_{job.id}_cancel_first", disabled=is_refused):
        st.markdown(plain(describe_cancel(_dependents(job))))
        is_pressed = st.button(
            "Cancel the job",
            key=f"{key}_{job.id}_cancel",
            type="primary",
            disabled=cannot_change() or not is_possible,
        )
        if is_pressed:
            submit.request_stop(job.id, "cancel")
            st.rerun()


def _offer_deletion(job: JobCard, key: str) -> None:
    with st.popover("Delete …", icon=":material/delete:"):
        st.markdown("Deletes the job with its log and its checkpoints. What it made is kept.")
        if st.button("Delete for good", key=f"{key}_{job.id}_delete", type="primary", disabled=cannot_change()):
            with explain_problems():
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
        settings = get_settings()
        is_here = is_newest_here(settings, job.id)
        log = read_log(settings, job.id, LOG_BYTES) if is_here else _log_tail_elsewhere(job.id)
        st.code(log or "The log is empty.", language=None)
    with st.expander("Spec and result", icon=":material/data_object:"):
        details = {"spec": job.spec, "result": job.result}
        st.code(json.dumps(details, indent=2, ensure_ascii=False), language="json")


@st.cache_data(ttl=_FETCH_AGAIN, show_spinner=False)
def _log_tail_elsewhere(job_id: str) -> str:
    """A log that another machine writes, from the shared store, which may be slow."""
    return read_log(get_settings(), job_id, LOG_BYTES)
