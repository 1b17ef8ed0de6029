"""Widgets for the evidence of a posterior: a reading by its name, or a decay and a power."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from streamlit.delta_generator import DeltaGenerator

from engine.mixing.evidence import READINGS, EvidenceRule
from ui.present.forms.questions import Question, config_questions
from ui.widgets.address import choose_one
from ui.widgets.fields import draw_valid, draw_widget, held

RULE = "decay and power"
_SAVED = "as saved"
_START = EvidenceRule(decay=0.9, power=0.3)  # of the numbers, before a mixture is calibrated


def draw_evidence(form: str, question: Question) -> Any:
    """The setting of a gate, as it is stored."""
    saved = question.default
    has_rule = isinstance(saved, Mapping)
    choices = (*question.choices, RULE)
    chosen = draw_widget(form, held(form, replace(question, choices=choices, default=RULE if has_rule else saved)))
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
