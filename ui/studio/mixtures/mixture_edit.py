"""Changes of a mixture in the registry: save, calibrate, make, copy, delete; and how it is used elsewhere."""

from __future__ import annotations

from functools import partial
from typing import Any

import streamlit as st
from pydantic import ValidationError

from engine.mixing.gate_type import gate_type
from engine.mixing.gates.posterior import PosteriorGateConfig
from engine.text.split_names import HeldOutSplit
from jobs.queue.submit import submit
from ui.present.charts.setting_grids import calibration_picture, describe_temperature
from ui.present.mixture_effect import command_of, describe_changes
from ui.present.model_use import curl_line
from ui.present.pages import PLAYGROUND
from ui.present.text.formatting import plain
from ui.present.text.posteriors import (
    describe_calibration,
    describe_fitted_text,
    describe_verdict,
    how_to_read,
    setting_text,
)
from ui.studio.job_views.pending_jobs import say_coming, unfinished_jobs
from ui.studio.mixtures.gate_form import draw_gate
from ui.studio.mixtures.mixture_controls import base_of, is_at_fault, reset, saved_request
from ui.studio.shared.use_it import show_aliases, show_job_popover, show_use
from ui.widgets.address import choose_some, query_at_opening, write_text
from ui.widgets.background import ask_scores
from ui.widgets.charts_and_tables import show_chart
from ui.widgets.fields import faults_of
from ui.widgets.notices import apply, cannot_change, explain_problems, keep, offer_deletion
from ui.widgets.on_demand import content_of
from workbench.answers.cards import MixtureCard
from workbench.answers.posteriors import EvidenceCalibration
from workbench.errors import BadSpecError
from workbench.kinds.analysis import Evaluate
from workbench.kinds.kind import complaints_of
from workbench.questions.calibration import EVIDENCE, CalibrationRequest, can_be_calibrated, missing_scores
from workbench.questions.cluster_grid import ClusterGridRequest, TemperatureProposal
from workbench.registry import experts, mixtures
from workbench.registry.database import reading, transaction
from workbench.settings import get_settings
from workbench.specs.gates import changed_gate, default_gate, dump_gate, load_gate
from workbench.specs.requests import MixtureRequest, MixtureSpec
from workbench.store.storage import get_storage


def show_calibration(mixture: MixtureCard, saved: MixtureRequest) -> None:
    """How much evidence should count, fitted on stored scores; for a gate without evidence how to get one."""
    if "evidence" not in gate_type(mixture.gate["kind"]).settings:
        st.caption("This gate does not use evidence. Choose a posterior in the gate settings and save it first.")
        return
    is_coming = is_calibrating(mixture)
    if state := mixture.notes or ("" if is_coming else describe_calibration(mixture)):
        st.caption(plain(state))
    st.caption(
        "Fits on dev text of the training domains how fast the posterior forgets (decay) and how much it trusts the "
        "evidence (power). Novel and test text are not read."
    )
    if is_coming:
        say_coming("evaluate", "A job scores dev text and calibrates this mixture.", mixture.name)
        return
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


def is_calibrating(mixture: MixtureCard) -> bool:
    """Whether an unfinished job will calibrate it."""
    return any(job.spec.get("calibrate") for job in unfinished_jobs() if job.spec.get("mixture") == mixture.name)


def _shown_key(mixture: MixtureCard) -> str:
    return f"calibration.{mixture.id}"


def _offer_scoring(mixture: MixtureCard, missing: str) -> None:
    """A button for the job that scores dev text and calibrates."""
    st.markdown(plain(missing))
    if st.button(
        "Score dev text and calibrate",
        key="calibration.score",
        type="primary",
        icon=":material/send:",
        disabled=cannot_change(),
    ):
        with explain_problems():
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


_ELSEWHERE, _USE = "mixture.elsewhere", "mixture.use"  # popovers


def offer_saving(mixture: MixtureCard, saved: MixtureRequest, choice: MixtureRequest) -> None:
    """What is not saved, and the buttons that save or discard it; the primary one last."""
    is_saved, base = choice == saved, saved_request(base_of(mixture))
    is_base = mixture.version == base_of(mixture).version
    if not is_base and choice in (saved, base):
        reset(mixture)
        st.rerun()  # nothing is lost: these controls hold no changes of their own
    can_save = bool(choice.active) and not is_saved and is_base and not is_at_fault(mixture)
    if not is_base:
        changes = describe_changes(base, saved) or "other names or notes"
        st.badge(plain(f"saved elsewhere meanwhile: {changes}"), color="red")
        st.button("Load what is saved", key="mixture.load", on_click=reset, args=(mixture,))
    if not is_saved:
        st.badge(plain(f"not saved: {describe_changes(saved, choice)}"), color="orange")
    with st.container(width="content", key="other_step"):
        st.page_link(PLAYGROUND.script, label="Open in playground", icon="", query_params={"left": mixture.name})
    has_changes = not is_saved or is_at_fault(mixture)
    st.button("Discard changes", disabled=not has_changes, key="mixture.reset", on_click=reset, args=(mixture,))
    if st.button("Save to the mixture", type="primary", disabled=cannot_change() or not can_save, key="mixture.save"):
        save_choice(mixture, choice)


def show_elsewhere(saved: MixtureRequest, choice: MixtureRequest, split: HeldOutSplit) -> None:
    """The same numbers as a command and as an HTTP call, and how the mixture is used from other programs."""
    is_saved = choice == saved
    st.caption("These are the saved settings." if is_saved else "Not saved: these settings apply to this page only.")
    with st.container(horizontal=True):
        box = st.popover("The same elsewhere", icon=":material/terminal:", key=_ELSEWHERE, on_change="rerun")
        if content := content_of(box, _ELSEWHERE):
            with content:
                _show_commands(saved, choice, split)
        box = st.popover("Use it", icon=":material/dns:", key=_USE, on_change="rerun")
        if content := content_of(box, _USE):
            with content:
                show_use(saved.model, "mixture")
        show_aliases(saved.model)
        _show_copy(saved.model)
        show_job_popover("export-mixture", "mixture", saved.model, "Export")


def _show_commands(saved: MixtureRequest, choice: MixtureRequest, split: HeldOutSplit) -> None:
    if command := command_of(saved, choice, split):
        st.code(command, language="bash", wrap_lines=True)
    else:
        st.caption("A command uses the gate that is saved: save this one first.")
    changes = {} if choice == saved else choice.changes()
    body = {"mixture": choice.model, "split": split} | changes
    st.code(curl_line("/v1/workbench/mix", body, get_settings()), language="bash", wrap_lines=True)


def _show_copy(mixture: str) -> None:
    """Keeps the mixture as it is saved under a name of its own, while the first one is changed further."""
    with st.popover("Keep a copy", icon=":material/content_copy:"):
        st.caption("A copy keeps what is saved now. Point an alias at it, and go on changing this one.")
        name = st.text_input("Name of the copy", placeholder=f"{mixture}.2", key="mixture.copy.name")
        if st.button("Copy the mixture", key="mixture.copy", disabled=cannot_change()):
            apply(
                lambda session: mixtures.copy_mixture(session, mixture, name.strip()),
                lambda copied: f"{copied.name} holds what {mixture} was.",
            )


_NEW = "mixture.new_one"  # an expander
_FORM = "mixture.new"
_NAME, _EXPERTS, _GATE = f"{_FORM}.name", f"{_FORM}.experts", f"{_FORM}.gate"  # in the address


def save_choice(mixture: MixtureCard, choice: MixtureRequest) -> None:
    """Saves a choice in one transaction; refused where another one was saved since its controls were drawn."""

    def save(session: Any) -> None:
        mixtures.require_version(session, mixture.name, [base_of(mixture).version])
        mixtures.arrange(session, mixture.name, choice.active or (), choice.weights or {})
        mixtures.set_gate(session, mixture.name, load_gate(choice.gate))

    apply(save, f"{mixture.name} is saved.", partial(reset, mixture))


def show_new_mixture() -> None:
    """The form of a new mixture of experts that exist."""
    with reading() as session:
        if not experts.list_states(session):
            return
        names = [card.name for card in experts.list_with_seeds(session)]
    is_named = any(key in query_at_opening() for key in (_NAME, _EXPERTS, _GATE))
    box = st.expander("New mixture", is_named, icon=":material/add:", key=_NEW, on_change="rerun")
    content = content_of(box, _NEW)
    if content is None:
        return
    with content:
        help = {name: field.description for name, field in MixtureSpec.model_fields.items()}
        name = write_text(st.text_input, "Name", key=_NAME, help=help["name"])
        members = choose_some(st.multiselect, "Experts", names, key=_EXPERTS, help=help["experts"])
        gate = draw_gate(_FORM, dump_gate(default_gate()), _GATE)
        is_faulty = bool(faults_of(_FORM))
        if st.button("Make the mixture", key="mixture.make", type="primary", disabled=cannot_change() or is_faulty):
            with explain_problems():
                _make({"name": name, "experts": members, "gate": gate})


def _make(data: dict[str, Any]) -> None:
    try:
        spec = MixtureSpec.model_validate(data)
    except ValidationError as error:
        raise BadSpecError(complaints_of(error)) from None
    with transaction() as session:
        card = mixtures.create_mixture(session, spec)
    if can_be_calibrated(card) and card.gate[EVIDENCE] == PosteriorGateConfig.evidence:  # the default, not a choice
        propose_for(card)
    keep(f"{spec.name} is made.")
    st.rerun()


def show_deletion(mixture: MixtureCard) -> None:
    """Deletes the composition after a second click; its experts stay."""
    offer_deletion(
        plain(f"Deletes {mixture.name}. Its experts stay in the registry."),
        f"delete_{mixture.id}",
        lambda session: mixtures.delete_mixture(session, mixture.name),
        f"{mixture.name} is deleted.",
        "Delete this mixture …",
    )
