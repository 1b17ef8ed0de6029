"""A form for a job: questions from its spec, the job as a command, its forecast, and the button that submits it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, cast

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from engine.errors import Problem
from jobs.queue.submit import submit_with_follow_up
from ui.present.forms.job_forecast import (
    describe_missing_forecast,
    describe_row,
    nearest_options_text,
    request_of,
    row_text,
    rows_of,
)
from ui.present.forms.questions import Offers, assemble, changed_answers, limit_questions, number_faults, questions_of
from ui.present.forms.readable_folders import require_readable
from ui.present.text.formatting import duration, plain, plain_with_code
from ui.widgets.background import BackgroundCall
from ui.widgets.elements.components import bring_into_view
from ui.widgets.fields import Answers, draw_preset, draw_questions, show_command
from ui.widgets.notices import cannot_change, explain_problems, show_failure
from workbench.access.actor import Role, may
from workbench.answers.forecasts import Forecast
from workbench.errors import BadSpecError
from workbench.job_records.devices import list_devices
from workbench.job_records.preconditions import advice_on
from workbench.kinds.kind import kind_named, parse_as
from workbench.registry.database import reading
from workbench.settings import get_settings
from workbench.specs.base import Spec
from workbench.specs.requests import TrainClusters

GPU_FIELDS = ("num_gpus", "gpu_share")
_UNNAMED = "unnamed"  # what a job is called while it is measured, before it has a name


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
    send: Callable[[Any], str] = submit_with_follow_up,
    limits: Mapping[tuple[str, ...], int] | None = None,
    plan: type[Spec] | None = None,
    proposed: Answers | None = None,
    show_outcome: Callable[[str, str], None],
) -> None:
    """The form of a kind of job; `command` is that of its kind. The id of the submitted job is kept for `last_job`.

    Where the kind has a probe, what the job will take stands at the right, measured as soon as the answers are valid.
    `skip` are fields without a question, `given` those answered elsewhere. `complaints` say what is wrong with the
    answers given elsewhere, when it is submitted; a number out of its range says so itself, and no button submits it.
    `beside` are options of the command that are not in the spec; `send` submits the spec, with
    jobs that belong to it, and returns the id of the job to show; `limits` are upper bounds of whole numbers.
    `plan` is the spec of several jobs, whose form has the key `kind`; `proposed` are answers that fields begin with.
    `show_outcome` draws the job (id, key) at the button.
    """
    spec = plan or kind_named(kind).spec
    questions = questions_of(spec, offers, skip=("kind", *skip, *_fields_without_use(kind)))
    left, right = _columns(has_costs=plan is not None or kind_named(kind).probe is not None)
    with left:
        if plan is None:
            draw_preset(kind, questions)
        shown = [
            replace(question, default=(proposed or {}).get(question.path, question.default))
            for question in limit_questions(questions, limits or {})
        ]
        answers = draw_questions(kind, shown, tucked) | (given or {})
    parsed = _parse(spec, answers)
    faults = number_faults(shown, answers)
    line = command(changed_answers(questions, answers) | (given or {}) | (beside or {})) if command else ""
    with right:
        expected = _expect(answers, parsed, faults, spec) if left is not right else None
    if left is right and isinstance(parsed, Spec) and not faults:
        _show_advice(parsed)
    with left:
        if expected is not None:
            show_first_batch(expected)
        show_command(kind, line, partial(_request, parsed), _spec_json(spec, answers))
    with right:
        is_refused = bool(faults) or (expected is not None and expected.fits is False)
        if expected is not None and expected.nearest:
            values = {f"{kind}.training.{name}": value for name, value in expected.nearest.items()}
            st.button("Use these settings", key=f"{kind}.nearest", on_click=st.session_state.update, args=(values,))
        outcome = st.container(key=f"outcome_{kind}")  # above the button: what is below it may be out of sight
        if st.button(
            label, type="primary", icon=":material/send:", key=f"{kind}.submit", disabled=cannot_change() or is_refused
        ):
            st.session_state[f"{kind}.clicks"] = st.session_state.get(f"{kind}.clicks", 0) + 1
            with outcome, explain_problems():
                st.session_state[f"{kind}.job"] = send(_require_valid(parsed, complaints))
        if job_id := last_job(kind):
            with outcome, explain_problems():
                show_outcome(job_id, kind)
    bring_into_view(f".st-key-outcome_{kind}", st.session_state.get(f"{kind}.clicks", 0), f"{kind}.in_view")


def _fields_without_use(kind: str) -> Sequence[str]:
    """The fields about GPUs that a clone does not bring along, as long as no worker has ever registered one."""
    with reading() as session:
        has_gpus = bool(list_devices(session))
    return () if has_gpus else [name for name in GPU_FIELDS if f"{kind}.{name}" not in st.session_state]


def _columns(*, has_costs: bool) -> tuple[DeltaGenerator, DeltaGenerator]:
    """Where the questions stand, and what the job will take: side by side where its costs can be measured."""
    if not has_costs:
        both = st.container()
        return both, both
    left, right = st.columns([5, 2], gap="medium")
    return left, right.container(border=True)


def _expect(answers: Answers, parsed: Spec | BadSpecError, faults: Sequence[str], kind: type[Spec]) -> Forecast | None:
    """Shows the forecast of the job and returns it; None as long as it is not known."""
    st.markdown("**What it will take**")
    if faults:
        st.caption(plain(f"Not measured yet. {faults[0]}"))
        return None
    spec = parsed if answers.get(("name",), _UNNAMED) else _parse(kind, answers | {("name",): _UNNAMED})
    if isinstance(spec, BadSpecError):
        st.caption(plain(describe_missing_forecast(spec)))
        return None
    try:
        require_readable(spec.local_paths())
    except Problem as problem:
        st.caption(plain(f"Not measured. {problem}"))
        return None
    if _is_job(kind):
        _show_advice(spec)
    expected = measure(spec)
    if expected is not None:
        if not _is_job(kind):
            st.caption(plain(expected.title))
        show_costs(expected, kind)
    return expected


def _show_advice(spec: Spec) -> None:
    with reading() as session:
        for advice in advice_on(session, spec):
            st.info(plain(advice))


def _request(parsed: Spec | BadSpecError) -> str:
    """The call of curl that submits the same; empty for a plan, and while the answers are not valid."""
    return request_of(parsed, get_settings()) if isinstance(parsed, Spec) and _is_job(type(parsed)) else ""


def last_job(kind: str) -> str | None:
    """The id of the job that this form submitted last."""
    return st.session_state.get(f"{kind}.job")


def _require_valid(parsed: Spec | BadSpecError, complaints: Sequence[str]) -> Spec:
    """The spec of all answers. Raises BadSpecError with all complaints at once."""
    if isinstance(parsed, BadSpecError):
        # `complaints` say better what a check of the spec as a unit says of answers given elsewhere.
        own = parsed.field_complaints if complaints else parsed.complaints
        raise BadSpecError([*own, *complaints])
    if complaints:
        raise BadSpecError(complaints)
    require_readable(parsed.local_paths())
    return parsed


def _parse(spec: type[Spec], answers: Answers) -> Spec | BadSpecError:
    """The spec of these answers, or what is wrong with them: parsed once for all that a page does with it."""
    try:
        return parse_as(spec, _spec_json(spec, answers))
    except BadSpecError as bad:
        return bad


def _spec_json(spec: type[Spec], answers: Answers) -> dict[str, Any]:
    return {**({"kind": spec.model_fields["kind"].default} if _is_job(spec) else {}), **assemble(answers)}


def _is_job(spec: type[Spec]) -> bool:
    """Whether a spec is of one job, not of a plan of several."""
    return "kind" in spec.model_fields


LOOK_SECONDS = 1.0  # between two looks of a page at its probes
_PATIENCE_SECONDS = 15.0  # without a look, after which a probe ends: the page was left
_CALLS, _WANTED = "probes", "probes.wanted"  # in the session


class ProbeCall(BackgroundCall):
    """One forecast in a thread of its own."""

    def __init__(self, stages: Generator[str, None, Forecast]) -> None:
        self.stage = "starting"
        self._seen_at = time.monotonic()
        super().__init__(None, partial(self._measure, stages))

    def _measure(self, stages: Generator[str, None, Forecast]) -> Forecast | None:
        with closing(stages):
            try:
                while time.monotonic() - self._seen_at < _PATIENCE_SECONDS:
                    self.stage = next(stages)
            except StopIteration as end:
                return cast("Forecast", end.value)
        return None

    @property
    def forecast(self) -> Forecast | None:
        """What was measured; None before the end, and where it failed."""
        return cast("Forecast | None", self.answer)

    def is_running(self) -> bool:
        """Whether the probe still measures. Each call keeps the probe from being stopped as abandoned."""
        self._seen_at = time.monotonic()
        return not self.is_done()

    def stop(self) -> None:
        """Ends the probe within a moment."""
        self._seen_at = float("-inf")

    @property
    def progress(self) -> str:
        """The current step of the probe, and how long it has taken."""
        return f"{self.stage} · {duration(self.seconds)}"

    @property
    def was_stopped(self) -> bool:
        """Whether it ended without an answer, because nobody looked."""
        return self.is_done() and self.answer is None and self.failure is None


def call_of(spec: Spec) -> ProbeCall | None:
    """The probe of a job like this, whatever its name; None where none was started or it was stopped."""
    call = _calls().get(_key(spec))
    return None if call is None or call.was_stopped else call


def advance(specs: Iterable[Spec]) -> bool:
    """Starts the first probe that was not started, unless one runs; whether any of them is still to end.

    Probes of other jobs are stopped. A user who may not start a job measures none.
    """
    if not may(Role.EDITOR):
        return False
    wanted = {_key(spec): spec for spec in specs}
    for key, call in _calls().items():
        if key not in wanted:
            call.stop()
    calls = {key: call_of(spec) for key, spec in wanted.items()}
    if any(call is not None and call.is_running() for call in calls.values()):
        return True
    for key, spec in wanted.items():
        if calls[key] is None:
            _calls()[key] = ProbeCall(_stages(spec))
            return True
    return False


def _stages(spec: Spec) -> Generator[str, None, Forecast]:
    from jobs.plans.clusterings import forecast_training
    from jobs.probe.forecast import forecast

    return (
        forecast_training(spec, get_settings()) if isinstance(spec, TrainClusters) else forecast(spec, get_settings())
    )


def _calls() -> dict[str, ProbeCall]:
    calls: dict[str, ProbeCall] = st.session_state.setdefault(_CALLS, {})
    return calls


def _key(spec: Spec) -> str:
    return spec.model_dump_json(exclude={"name"})


# one job ------------------------------------------------------------------------------------------


def measure(spec: Spec) -> Forecast | None:
    """The forecast of a form's job: it draws the progress of the probe, or the button that starts it."""
    call = call_of(spec)
    if call is None and st.session_state.get(_WANTED) != _key(spec):
        st.caption("Its first updates are measured on this machine, and nothing is kept. It can be started without.")
        _offer_probe(spec, "Measure it")
        return None
    if call is None or call.is_running():
        _measuring(spec)
        return None
    if call.failure is not None:
        if isinstance(call.failure, Problem):
            show_failure(call.failure)
        else:
            st.caption(plain(f"Not measured: {call.failure}. It can be started all the same."))
        _offer_probe(spec, "Measure it again")
    return call.forecast


def _offer_probe(spec: Spec, words: str) -> None:
    """A button that measures the choice at hand; a probe takes all cores, so that none starts by itself.

    Its key is that of the form, so that a click is not lost while the page is drawn for the choice just made.
    """
    name = f"probe.{type(spec).__name__}"
    if st.button(words, key=name, icon=":material/timer:", disabled=cannot_change()):
        _calls().pop(_key(spec), None)
        st.session_state[_WANTED] = _key(spec)
        st.rerun()


@st.fragment(run_every=LOOK_SECONDS)
def _measuring(spec: Spec) -> None:
    if not advance([spec]):
        st.rerun()
    call = call_of(spec)
    st.progress(0.0 if call is None else _share(call), text=plain(f"Probe: {call.progress if call else 'starting'}"))


def _share(call: ProbeCall) -> float:
    """A share that grows and never reaches the end, since a probe cannot know how long its start takes."""
    return call.seconds / (call.seconds + 10.0)


def show_costs(forecast: Forecast, kind: type[Spec]) -> None:
    """Time, memory, disk and computation as a table, and why it does not fit."""
    if rows := [{"What": name, "How much": value} for name, value in rows_of(forecast)]:
        with st.container(key=f"costs_{kind.__name__}"):
            st.table(rows, border="horizontal")
    if forecast.problem:
        box = st.error if forecast.fits is False else st.warning
        box(plain_with_code(f"{forecast.problem} {nearest_options_text(forecast, kind)}"))


def show_first_batch(forecast: Forecast) -> None:
    """The first sequences as the model will read them."""
    if forecast.measured is None or not forecast.measured.first_batch:
        return
    with st.container(border=True):
        st.markdown("**The first batch, as the model will see it**")
        for number, row in enumerate(forecast.measured.first_batch[:2], 1):
            st.caption(plain(describe_row(row, number)))
            st.code(row_text(row), language=None, wrap_lines=True)
