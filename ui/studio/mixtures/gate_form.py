"""The form of a gate: which one, and the settings of that one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from ui.present.form_choices import with_clusterings
from ui.present.gate_questions import kind_question, setting_questions
from ui.widgets.fields import draw_widget


def draw_gate(form: str, saved: Mapping[str, Any]) -> dict[str, Any]:
    """Draws the form; gives the gate as it is stored."""
    with st.expander("Gate settings", icon=":material/tune:"):
        kind = draw_widget(form, kind_question(saved))
        return {"kind": kind} | {
            one.path[-1]: draw_widget(form, one) for one in with_clusterings(setting_questions(kind, saved))
        }
