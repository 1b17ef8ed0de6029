"""The evidence of a mixture, or the temperature of its gate, fitted on dev text, and a button that saves it."""

from __future__ import annotations

from functools import partial

import streamlit as st

from engine.mixing.gate_type import gate_type
from jobs.queue.submit import submit
from ui.present.charts.setting_grids import calibration_picture, describe_temperature
from ui.present.text.calibration import (
    describe_calibration,
    describe_fitted_text,
    describe_verdict,
    how_to_read,
    setting_text,
)
from ui.present.text.formatting import plain
from ui.studio.job_views.pending_jobs import empty_until, unfinished_jobs
from ui.studio.mixtures.mixture_controls import reset
from ui.widgets.background import ask_scores
from ui.widgets.changes import apply, cannot_change
from ui.widgets.notices import explained, keep
from ui.widgets.show_chart import show_chart
from workbench.answers.cards import MixtureCard
from workbench.answers.posteriors import EvidenceCalibration
from workbench.kinds.analysis import Evaluate
from workbench.questions.calibration import CalibrationRequest, missing_scores
from workbench.questions.cluster_grid import ClusterGridRequest, TemperatureProposal
from workbench.registry import mixtures
from workbench.registry.database import reading
from workbench.specs.gates import changed_gate, load_gate
from workbench.specs.requests import MixtureRequest
from workbench.store.storage import get_storage


def show_calibration(mixture: MixtureCard, saved: MixtureRequest) -> None:
    """How much evidence should count, fitted on stored scores; for a gate without evidence how to get one."""
    if "evidence" not in gate_type(mixture.gate["kind"]).settings:
        st.caption("This gate does not use evidence. Choose a posterior in the gate settings and save it first.")
        return
    if state := mixture.notes or describe_calibration(mixture):
        st.caption(plain(state))
    st.caption(
        "Fits on dev text of the training domains how fast the posterior forgets (decay) and how much it trusts the "
        "evidence (power). Novel and test text are not read."
    )
    key = _shown_key(mixture)
    if st.button("Calibrate", key="calibration.start", icon=":material/tune:"):
        st.session_state[key] = True
    if not st.session_state.get(key):
        return
    with reading() as session:
        missing = missing_scores(session, get_storage(), mixture.name)
    if missing:
        _offer_scoring(mixture, missing)
        return
    question = CalibrationRequest(mixture=saved.model)
    if answer := ask_scores("calibration", question, "Mixing the stored scores with every setting", saved):
        _show(mixture, answer)


def propose_for(mixture: MixtureCard) -> None:
    """Opens the page on a new mixture, with the evidence that is proposed for it."""
    st.query_params["mixture"] = mixture.name  # its widget is drawn, so the session's value cannot be set any more
    st.session_state[_shown_key(mixture)] = True


def _shown_key(mixture: MixtureCard) -> str:
    return f"calibration.{mixture.id}"


def _offer_scoring(mixture: MixtureCard, missing: str) -> None:
    """A button for the job that scores dev text and calibrates; that job, while it is unfinished."""
    if any(job.spec.get("calibrate") for job in unfinished_jobs() if job.spec.get("mixture") == mixture.name):
        empty_until("evaluate", missing, "", mixture=mixture.name, place="calibration")
        return
    st.markdown(plain(missing))
    if st.button(
        "Score dev text and calibrate",
        key="calibration.score",
        type="primary",
        icon=":material/send:",
        disabled=cannot_change(),
    ):
        with explained():
            submit(Evaluate(mixture=mixture.name, split="dev", calibrate=True))
            keep(f"The job that scores dev text and calibrates {mixture.name} is queued.")
            st.rerun()


def _show(mixture: MixtureCard, answer: EvidenceCalibration) -> None:
    st.markdown(plain(describe_verdict(answer)))
    show_chart(calibration_picture(answer), "calibration")
    st.caption(plain(f"{how_to_read(answer)} {describe_fitted_text(answer)}"))
    if answer.keeps:
        return
    with st.container(horizontal=True):
        is_accepted = st.button("Save this evidence", key="calibration.save", type="primary", disabled=cannot_change())
        if st.button(f"Keep {setting_text(answer.now)}", key="calibration.keep"):
            st.session_state.pop(_shown_key(mixture))
            st.rerun()
    if is_accepted:
        apply(
            lambda session: mixtures.save_calibration(session, answer),
            f"{mixture.name} is saved with {setting_text(answer.best)}.",
            partial(reset, mixture),
        )


def show_temperature(mixture: MixtureCard, saved: MixtureRequest) -> None:
    """Offers a temperature from dev text; draws nothing for a gate that does not use clusters."""
    if "temperature" not in mixture.gate:
        return
    key = f"temperature.{mixture.id}"
    if st.button("Propose a temperature from dev text", key="temperature.start", icon=":material/tune:"):
        st.session_state[key] = True
    if not st.session_state.get(key):
        return
    question = ClusterGridRequest(mixture=saved.model, split="dev")
    grid = ask_scores("temperature", question, "Mixing the stored scores at every temperature", saved)
    if grid and grid.proposed:
        _propose(mixture, grid.proposed)


def _propose(mixture: MixtureCard, proposed: TemperatureProposal) -> None:
    st.markdown(plain(describe_temperature(proposed)))
    if proposed.perplexity is None or proposed.temperature == proposed.current:
        return
    if st.button("Save this temperature", key="temperature.save", type="primary", disabled=cannot_change()):
        gate = changed_gate(load_gate(mixture.gate), {"temperature": proposed.temperature})
        apply(
            lambda session: mixtures.set_gate(session, mixture.name, gate),
            f"{mixture.name} is saved with temperature {proposed.temperature:g}.",
            partial(reset, mixture),
        )
