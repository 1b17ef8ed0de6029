"""The questions of a form that asks for a gate: which one, then the settings of that one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.mixing.gate_type import gate_type, gate_types
from ui.present.forms.questions import Question, config_questions

GROUP = "gate"
TITLE = "Weights come from"


def kind_question(saved: Mapping[str, Any]) -> Question:
    """Which gate; the saved one at first."""
    gates = gate_types()
    labels = {name: gate.title for name, gate in gates.items()}
    help = "\n".join(f"- {gate.title}: {gate.sentence}." for gate in gates.values())
    return Question((GROUP, "kind"), "name", help, saved["kind"], tuple(gates), choice_labels=labels, title=TITLE)


def setting_questions(kind: str, saved: Mapping[str, Any]) -> list[Question]:
    """The settings of a gate. A setting that the saved gate has, too, begins with the saved value."""
    questions = config_questions(GROUP, gate_type(kind).config(kind))
    return [replace(one, default=saved.get(one.path[-1], one.default)) for one in questions]
