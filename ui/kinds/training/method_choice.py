"""The choice of a method in a form of a training, with the settings that have no group of their own in the spec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from engine.methods.base import Method
from ui.present.forms.number_faults import number_faults
from ui.present.forms.questions import changed, config_questions
from ui.widgets.fields import Answers, draw_widget


@dataclass(frozen=True)
class MethodChoice:
    """The chosen method; what the form of the job answers with it, leaves out, and finds wrong."""

    method: Method
    given: Answers
    skip: set[str]
    faults: list[str] = field(default_factory=list)


def choose_method(kind: str, methods: Mapping[str, Method]) -> MethodChoice:
    """Asks for one of these methods, where there are several, and for its own settings."""
    name = next(iter(methods))
    if len(methods) > 1:
        name = st.selectbox(
            "Method", list(methods), format_func=lambda name: f"{name}: {methods[name].sentence}", key=f"{kind}.method"
        )
    method = methods[name]
    groups = {other.config_field for other in methods.values()} - {method.config_field}
    given: Answers = {("method",): name} if len(methods) > 1 else {}
    choice = MethodChoice(method, given, {"method", "options", *groups})
    if method.config is None or method.config_field != "options":
        return choice
    questions = config_questions(method.name, method.config())
    answers = {question.path: draw_widget(kind, question) for question in questions}
    if options := {path[-1]: value for path, value in changed(questions, answers).items()}:
        choice.given["options",] = options
    choice.faults.extend(number_faults(questions, answers))
    return choice


def option_widgets(kind: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """The widgets of a spec's settings that have no group of their own."""
    return {f"{kind}.{spec['method']}.{name}": value for name, value in spec.get("options", {}).items()}
