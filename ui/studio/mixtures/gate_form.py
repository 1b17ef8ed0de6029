"""The form of a gate: which one, and the settings of that one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from ui.present.forms.form_choices import with_clusterings
from ui.present.forms.gate_questions import kind_question, setting_questions
from ui.present.forms.questions import Question
from ui.studio.shared.evidence import draw_evidence
from ui.widgets.fields import draw_widget


def draw_gate(form: str, saved: Mapping[str, Any]) -> dict[str, Any]:
    """Draws the form; gives the gate as it is stored."""
    with st.expander("Gate settings", icon=":material/tune:"):
        kind = draw_widget(form, kind_question(saved))
        return {"kind": kind} | {
            one.path[-1]: _draw_setting(form, one) for one in with_clusterings(setting_questions(kind, saved))
        }


def _draw_setting(form: str, question: Question) -> Any:
    return (draw_evidence if question.path[-1] == "evidence" else draw_widget)(form, question)
