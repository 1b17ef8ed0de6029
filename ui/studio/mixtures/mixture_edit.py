"""The buttons next to the title of the page Mixtures, and changes in the registry: save, make, copy, delete."""

from __future__ import annotations

from functools import partial
from typing import Any

import streamlit as st
from pydantic import ValidationError

from engine.mixing.gates.posterior import PosteriorGateConfig
from engine.text.split_names import HeldOutSplit
from ui.present.mixture_effect import command_of, describe_changes
from ui.present.model_use import curl_line
from ui.present.pages import PLAYGROUND
from ui.present.text.formatting import plain
from ui.studio.mixtures.calibration_view import propose_for
from ui.studio.mixtures.gate_form import draw_gate
from ui.studio.mixtures.mixture_controls import base_of, is_at_fault, reset, saved_request
from ui.studio.shared.aliases import show_aliases
from ui.studio.shared.use_it import show_job_popover, show_use
from ui.widgets.address import choose_some, opened_with, write_text
from ui.widgets.changes import apply, cannot_change, offer_deletion
from ui.widgets.fields import faults_of
from ui.widgets.notices import explained, keep
from ui.widgets.on_demand import content_of
from workbench.answers.cards import MixtureCard
from workbench.errors import BadSpecError
from workbench.kinds.kind import complaints_of
from workbench.questions.calibration import EVIDENCE, can_be_calibrated
from workbench.registry import experts, mixtures
from workbench.registry.database import reading, transaction
from workbench.settings import get_settings
from workbench.specs.gates import default_gate, dump_gate, load_gate
from workbench.specs.requests import MixtureRequest, MixtureSpec

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
        names = sorted(name for _, name, _ in experts.list_states(session))
    if not names:
        return
    is_named = any(key in opened_with() for key in (_NAME, _EXPERTS, _GATE))
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
            with explained():
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
