"""A form for a job: questions from its spec, the same job as a command, and the button that submits it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from engine.errors import Problem
from jobs.queue.submit import submit
from ui.present.forms.job_forecast import describe_missing_forecast, request_of
from ui.present.forms.questions import Offers, assemble, changed_answers, limit_questions, number_faults, questions_of
from ui.present.forms.readable_folders import require_readable
from ui.present.jobs.job_status import style_of
from ui.present.pages import JOBS
from ui.present.text.formatting import plain
from ui.widgets.changes import cannot_change
from ui.widgets.fields import Answers, draw_preset, draw_questions, show_command
from ui.widgets.notices import explained
from ui.widgets.probe import measure, show_costs, show_first_batch
from workbench.answers.forecasts import Forecast
from workbench.errors import BadSpecError
from workbench.job_records.jobs import get_jobs
from workbench.job_records.preconditions import advice_on
from workbench.kinds.kind import kind_named, parse_spec
from workbench.registry.database import reading
from workbench.settings import get_settings
from workbench.specs.base import Spec

_STATES = {  # of the last job; in the others it goes on as it was submitted
    "done": (st.success, "is done"),
    "failed": (st.error, "has failed"),
    "cancelled": (st.warning, "is cancelled"),
    "paused": (st.warning, "is paused"),
    "interrupted": (st.warning, "is interrupted"),
}
UNNAMED = "unnamed"  # what a job is called while it is measured, before it has a name


def show_job_form(
    kind: str,
    offers: Offers,
    label: str,
    *,
    command: Callable[[Answers], str] | None,
    skip: Iterable[str] = (),
    given: Answers | None = None,
    tucked: Collection[str] = (),
    complaints: Sequence[str] = (),
    beside: Answers | None = None,
    send: Callable[[Any], str] = submit,
    limits: Mapping[tuple[str, ...], int] | None = None,
) -> None:
    """The form of a kind of job; `command` is that of its kind. The id of the submitted job is kept for `last_job`.

    Where the kind has a probe, what the job will take stands at the right, measured as soon as the answers are valid.
    `skip` are fields without a question, `given` those answered elsewhere. `complaints` say what is wrong with the
    answers given elsewhere, when it is submitted; a number out of its range says so itself, and no button submits it.
    `beside` are options of the command that are not in the spec; `send` submits the spec, with
    jobs that belong to it, and returns the id of the job to show; `limits` are upper bounds of whole numbers.
    """
    questions = questions_of(kind_named(kind).spec, offers, skip=("kind", *skip))
    left, right = _columns(kind)
    with left:
        draw_preset(kind, questions)
        shown = limit_questions(questions, limits or {})
        answers = draw_questions(kind, shown, tucked) | (given or {})
    parsed = _parse(kind, answers)
    faults = number_faults(shown, answers)
    line = command(changed_answers(questions, answers) | (given or {}) | (beside or {})) if command else ""
    with right:
        expected = _expect(kind, answers, parsed, faults) if left is not right else None
    with left:
        if expected is not None:
            show_first_batch(expected)
        show_command(kind, line, partial(_request, parsed), _spec_json(kind, answers))
    with right:
        is_refused = bool(faults) or (expected is not None and expected.fits is False)
        if expected is not None and expected.nearest:
            values = {f"{kind}.training.{name}": value for name, value in expected.nearest.items()}
            st.button("Use these settings", key=f"{kind}.nearest", on_click=st.session_state.update, args=(values,))
        outcome = st.container()  # above the button, since what is below it may lie outside of the window
        if st.button(
            label, type="primary", icon=":material/send:", key=f"{kind}.submit", disabled=cannot_change() or is_refused
        ):
            with outcome, explained():
                st.session_state[f"{kind}.job"] = send(_checked(parsed, complaints))
        with outcome:
            _show_submitted(kind)


def _show_submitted(kind: str) -> None:
    """Above the button: the state of the last job, as its card may stand below the edge of the screen."""
    if job_id := last_job(kind):
        with reading() as session:
            cards = get_jobs(session, [job_id])
        for card in cards:
            show, words = _STATES.get(card.state, (st.success, "is submitted"))
            icon = style_of(card).icon if card.state in _STATES else ":material/check:"
            show(plain(f"“{card.title}” {words}."), icon=icon)
            label = "The last job"
            st.page_link(JOBS.script, label=label, icon=JOBS.icon, query_params={"job": job_id})


def _columns(kind: str) -> tuple[DeltaGenerator, DeltaGenerator]:
    """Where the questions stand, and what the job will take: side by side where its costs can be measured."""
    if kind_named(kind).probe is None:
        both = st.container()
        return both, both
    left, right = st.columns([5, 2], gap="medium")
    return left, right.container(border=True)


def _expect(kind: str, answers: Answers, parsed: Spec | BadSpecError, faults: Sequence[str]) -> Forecast | None:
    """Shows the forecast of the job and returns it; None as long as it is not known."""
    st.markdown("**What it will take**")
    if faults:
        st.caption(plain(f"Not measured yet. {faults[0]}"))
        return None
    spec = parsed if answers.get(("name",), UNNAMED) else _parse(kind, answers | {("name",): UNNAMED})
    if isinstance(spec, BadSpecError):
        st.caption(plain(describe_missing_forecast(spec)))
        return None
    try:
        require_readable(spec.local_paths())
    except Problem as problem:
        st.caption(plain(f"Not measured. {problem}"))
        return None
    with reading() as session:
        for advice in advice_on(session, spec):
            st.info(plain(advice))
    expected = measure(spec)
    if expected is not None:
        show_costs(expected, type(spec))
    return expected


def _request(parsed: Spec | BadSpecError) -> str:
    """The call of curl that submits the same; empty while the answers are not valid."""
    return "" if isinstance(parsed, BadSpecError) else request_of(parsed, get_settings())


def last_job(kind: str) -> str | None:
    """The id of the job that this form submitted last."""
    return st.session_state.get(f"{kind}.job")


def _checked(parsed: Spec | BadSpecError, complaints: Sequence[str]) -> Spec:
    """The spec of all answers. Raises BadSpecError with all complaints at once."""
    if isinstance(parsed, BadSpecError):
        # `complaints` say better what a check of the spec as a unit says of answers given elsewhere.
        own = parsed.field_complaints if complaints else parsed.complaints
        raise BadSpecError([*own, *complaints])
    if complaints:
        raise BadSpecError(complaints)
    require_readable(parsed.local_paths())
    return parsed


def _parse(kind: str, answers: Answers) -> Spec | BadSpecError:
    """The spec of these answers, or what is wrong with them: parsed once for all that a page does with it."""
    try:
        spec: Spec = parse_spec(_spec_json(kind, answers))
    except BadSpecError as bad:
        return bad
    return spec


def _spec_json(kind: str, answers: Answers) -> dict[str, Any]:
    return {"kind": kind, **assemble(answers)}
