"""Forecasts on a page: probes that run behind it, one after another, and end where nobody looks any more."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable
from contextlib import closing
from functools import partial
from typing import cast

import streamlit as st

from engine.errors import Problem
from ui.present.forms.job_forecast import describe_row, nearest_options_text, row_text, rows_of
from ui.present.text.formatting import duration, plain, spoken
from ui.widgets.background import BackgroundCall
from ui.widgets.notices import show_failure
from workbench.access.actor import Role, may
from workbench.answers.forecasts import Forecast
from workbench.settings import get_settings
from workbench.specs.base import Spec
from workbench.specs.requests import TrainClusters

LOOK_SECONDS = 1.0  # between two looks of a page at its probes
_PATIENCE_SECONDS = 15.0  # without a look, after which a probe ends: the page was left
_SETTLED_SECONDS = 1.5  # that a form must stand as it is before it is measured
_CALLS, _SINCE = "probes", "probes.since"  # in the session


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
    """The forecast of a form's job: it draws the progress of the probe, or why there is none."""
    call = call_of(spec)
    if call is None or call.is_running():
        _measuring(spec)
        return None
    if isinstance(call.failure, Problem):
        show_failure(call.failure)
    elif call.failure is not None:
        st.caption(plain(f"Not measured: {call.failure}. It can be started all the same."))
    return call.forecast


@st.fragment(run_every=LOOK_SECONDS)
def _measuring(spec: Spec) -> None:
    key, now = _key(spec), time.monotonic()
    if st.session_state.get(_SINCE, ("", 0.0))[0] != key:
        st.session_state[_SINCE] = (key, now)
    if call_of(spec) is None and now - st.session_state[_SINCE][1] < _SETTLED_SECONDS:
        st.caption("Measured here as soon as the form stands still.")
        return
    if not advance([spec]):
        st.rerun()
    call = call_of(spec)
    st.progress(0.0 if call is None else _share(call), text=plain(f"Probe: {call.progress if call else 'starting'}"))


def _share(call: ProbeCall) -> float:
    """A share that grows and never reaches the end, since a probe cannot know how long its start takes."""
    return call.seconds / (call.seconds + 10.0)


def show_costs(forecast: Forecast, kind: type[Spec]) -> None:
    """Time, memory, disk and computation as a table, and why it does not fit."""
    with st.container(key=f"costs_{kind.__name__}"):
        st.table([{"What": name, "How much": value} for name, value in rows_of(forecast)], border="horizontal")
    if forecast.problem:
        box = st.error if forecast.fits is False else st.warning
        box(spoken(f"{forecast.problem} {nearest_options_text(forecast, kind)}"))


def show_first_batch(forecast: Forecast) -> None:
    """The first sequences as the model will read them."""
    if forecast.measured is None or not forecast.measured.first_batch:
        return
    with st.container(border=True):
        st.markdown("**The first batch, as the model will see it**")
        for number, row in enumerate(forecast.measured.first_batch[:2], 1):
            st.caption(plain(describe_row(row, number)))
            st.code(row_text(row), language=None, wrap_lines=True)
