"""The choice of a method in a form of a training, with the settings that have no group of their own in the spec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from engine.methods.base import Method
from ui.present.forms.questions import changed_answers, config_questions, number_faults
from ui.widgets.fields import Answers, draw_widget


def choose_method(kind: str, methods: Mapping[str, Method]) -> tuple[Method, dict[str, Any]]:
    """Asks for one of these methods, where there are several, and for its own settings.

    Returns the method and arguments of `show_job_form`.
    """
    name = next(iter(methods))
    if len(methods) > 1:
        name = st.selectbox(
            "Method",
            list(methods),
            format_func=lambda name: f"{methods[name].title}: {methods[name].sentence}",
            key=f"{kind}.method",
        )
    method = methods[name]
    given: Answers = {("method",): name} if len(methods) > 1 else {}
    skip = {"method", "options", *(other.config_field for other in methods.values())} - {method.config_field}
    form = {"given": given, "skip": {*skip, "options"}, "complaints": []}
    if method.config is None or method.config_field != "options":
        return method, form
    questions = config_questions(method.name, method.config())
    answers = {question.path: draw_widget(kind, question) for question in questions}
    if options := {path[-1]: value for path, value in changed_answers(questions, answers).items()}:
        given["options",] = options
    return method, form | {"complaints": number_faults(questions, answers)}


def option_widgets(kind: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """The widgets of a spec's settings that have no group of their own."""
    return {f"{kind}.{spec['method']}.{name}": value for name, value in spec.get("options", {}).items()}
