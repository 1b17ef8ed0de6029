"""The form of a gate: which one, and the settings of that one, evidence among them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from engine.errors import Problem
from engine.mixing.evidence import READINGS, EvidenceRule
from engine.mixing.gate_type import gate_type, gate_types
from ui.present.forms.form_choices import clustering_names, with_clusterings
from ui.present.forms.questions import QuestionForm, config_questions
from ui.present.forms.settings_in_address import gate_fault, gate_values, read_gate
from ui.widgets.address import choose_one, fresh, note, note_fault, show_fault
from ui.widgets.fields import draw_valid, draw_widget, faults_of, key_of, with_held_value

RULE = "decay and power"
_SAVED = "as saved"
_START = EvidenceRule(decay=0.9, power=0.3)  # of the numbers, before a mixture is calibrated


def draw_evidence(form: str, question: QuestionForm) -> Any:
    """The setting of a gate, as it is stored."""
    saved = question.default
    has_rule = isinstance(saved, Mapping)
    choices = (*question.choices, RULE)
    chosen = draw_widget(
        form, with_held_value(form, replace(question, choices=choices, default=RULE if has_rule else saved))
    )
    if chosen != RULE:
        return chosen
    rule = EvidenceRule(**saved) if has_rule else _START
    inside = [replace(one, path=(*question.path, one.path[-1])) for one in config_questions("evidence", rule)]
    return {one.path[-1]: draw_valid(form, one) for one in inside}


def choose_evidence(column: DeltaGenerator, key: str, gate: Mapping[str, Any]) -> Any:
    """Which evidence a comparison is by: the paper's, the code's, or the saved gate's where that is another."""
    saved = gate.get("evidence")
    chosen = choose_one(
        column.segmented_control,
        "Evidence",
        [*READINGS, *([_SAVED] if isinstance(saved, Mapping) else [])],
        default="prefix",
        key=key,
        required=True,
        help="What the posterior sees: the full prefix (paper), the last token (code), or as the gate is saved.",
    )
    return saved if chosen == _SAVED else chosen


GROUP = "gate"
TITLE = "Weights come from"


def kind_question(saved: Mapping[str, Any]) -> QuestionForm:
    """Which gate; the saved one at first."""
    gates = gate_types()
    labels = {name: gate.title for name, gate in gates.items()}
    help = "\n".join(f"- {gate.title}: {gate.sentence}." for gate in gates.values())
    return QuestionForm((GROUP, "kind"), "name", help, saved["kind"], tuple(gates), choice_labels=labels, title=TITLE)


def setting_questions(kind: str, saved: Mapping[str, Any]) -> list[QuestionForm]:
    """The settings of a gate. A setting that the saved gate also has begins with the saved value."""
    questions = config_questions(GROUP, gate_type(kind).config(kind))
    return [replace(question, default=saved.get(question.path[-1], question.default)) for question in questions]


def draw_gate(form: str, saved: Mapping[str, Any], address: str = "") -> dict[str, Any]:
    """Draws the form; gives the gate as it is stored. While `faults_of(form)` holds any, no button may store it.

    What differs from the saved gate stands in the page's address under the key `address`, if there is one.
    """
    if address:
        recall_gate(form, saved, address)
    faults_of(form).clear()
    with st.expander("Gate settings", icon=":material/tune:"):
        kind = draw_widget(form, with_held_value(form, kind_question(saved)))
        gate = {"kind": kind} | {
            clustering.path[-1]: draw_evidence(form, with_held_value(form, clustering))
            if clustering.path[-1] == "evidence"
            else draw_valid(form, clustering)
            for clustering in with_clusterings(setting_questions(kind, saved))
        }
    if address:
        note_gate(saved, gate, address)
        show_fault(address)
    return gate


def recall_gate(form: str, saved: Mapping[str, Any], address: str, only: Sequence[str] = ()) -> None:
    """Sets the form to what the address newly says; a gate that there cannot be is said, and the saved one shown.

    `only` are the settings that the form has, if not all.
    """
    values = fresh(address)
    if values is None:
        return
    gate, words = dict(saved), ""
    try:
        gate = read_gate(values, saved, clustering_names(), only)
    except Problem as problem:
        words = gate_fault(problem)
    st.session_state.update(_fields(form, gate))
    note_fault(address, words, gate_values(saved, gate))


def _fields(form: str, gate: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield key_of(form, kind_question(gate)), gate["kind"]
    for question in setting_questions(gate["kind"], gate):
        value = question.default
        if isinstance(value, Mapping):  # evidence by its numbers
            yield from ((f"{key_of(form, question)}.{part}", number) for part, number in value.items())
            value = RULE
        yield key_of(form, question), value


def note_gate(saved: Mapping[str, Any], gate: Mapping[str, Any], address: str) -> None:
    """Writes into the address what differs from the saved gate."""
    with suppress(Problem):  # of a form that is half filled in: the page says what is missing
        note(address, gate_values(saved, gate))
