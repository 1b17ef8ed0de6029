"""The form of a gate: which one, and the settings of that one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import streamlit as st

from engine.errors import Problem
from ui.present.forms.form_choices import clustering_names, with_clusterings
from ui.present.forms.gate_questions import kind_question, setting_questions
from ui.present.forms.questions import Question
from ui.present.forms.settings_in_address import gate_fault, gate_values, read_gate
from ui.studio.shared.evidence import RULE, draw_evidence
from ui.widgets.address import fresh, note, note_fault, show_fault
from ui.widgets.fields import draw_valid, draw_widget, faults_of, held, key_of


def draw_gate(form: str, saved: Mapping[str, Any], address: str = "") -> dict[str, Any]:
    """Draws the form; gives the gate as it is stored. While `faults_of(form)` holds any, no button may store it.

    What differs from the saved gate stands in the page's address under the key `address`, if there is one.
    """
    if address:
        recall_gate(form, saved, address)
    faults_of(form).clear()
    with st.expander("Gate settings", icon=":material/tune:"):
        kind = draw_widget(form, held(form, kind_question(saved)))
        gate = {"kind": kind} | {
            one.path[-1]: _draw_setting(form, one) for one in with_clusterings(setting_questions(kind, saved))
        }
    if address:
        note_gate(saved, gate, address)
        show_fault(address)
    return gate


def _draw_setting(form: str, question: Question) -> Any:
    if question.path[-1] == "evidence":
        return draw_evidence(form, held(form, question))
    return draw_valid(form, question)


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
    """What the widgets of the form hold for a gate."""
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
