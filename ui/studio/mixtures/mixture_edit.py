"""Changes of mixtures in the registry: save a choice, make a mixture, delete one."""

from __future__ import annotations

from typing import Any

import streamlit as st
from pydantic import ValidationError

from engine.mixing.gates.posterior import PosteriorGateConfig
from ui.present.text.formatting import plain
from ui.studio.mixtures.calibration_view import propose_for
from ui.studio.mixtures.gate_form import draw_gate
from ui.studio.mixtures.mixture_controls import base_of, reset
from ui.widgets.address import choose_some, opened_with, write_text
from ui.widgets.fields import faults_of
from ui.widgets.notices import explained, keep
from ui.widgets.on_demand import content_of
from ui.widgets.rights import cannot_change
from workbench.answers.cards import MixtureCard
from workbench.errors import BadSpecError
from workbench.kinds.parse_spec import complaints_of
from workbench.questions.calibration import EVIDENCE, can_be_calibrated
from workbench.registry import experts, mixtures
from workbench.registry.database import reading, transaction
from workbench.specs.gates import default_gate, dump_gate, load_gate
from workbench.specs.requests import MixtureRequest, MixtureSpec

_NEW = "mixture.new_one"  # an expander
_FORM = "mixture.new"
_NAME, _EXPERTS, _GATE = f"{_FORM}.name", f"{_FORM}.experts", f"{_FORM}.gate"  # in the address


def save_choice(mixture: MixtureCard, choice: MixtureRequest) -> None:
    """Saves a choice in one transaction; refused where another one was saved since its controls were drawn."""
    with explained():
        with transaction() as session:
            mixtures.require_version(session, mixture.name, [base_of(mixture).version])
            mixtures.arrange(session, mixture.name, choice.active or (), choice.weights or {})
            mixtures.set_gate(session, mixture.name, load_gate(choice.gate))
        reset(mixture)
        keep(f"{mixture.name} is saved.")
        st.rerun()


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
    with st.popover("Delete this mixture …", icon=":material/delete:"):
        st.markdown(plain(f"Deletes {mixture.name}. Its experts stay in the registry."))
        if st.button("Delete for good", key=f"delete_{mixture.id}", type="primary", disabled=cannot_change()):
            with explained():
                with transaction() as session:
                    mixtures.delete_mixture(session, mixture.name)
                keep(f"{mixture.name} is deleted.")
                st.rerun()
