"""The form that trains on all domains together: DEMix, LoRA, MoE, dense, or a method of a plug-in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from engine.methods.base import Method
from engine.methods.registry import joint_methods
from ui.kinds.form import DOMAINS, JOINT, SEED_MODEL, TOGETHER, UNTRAINED, TrainForm, TrainOutcome
from ui.present.forms.form_choices import is_untrained
from ui.present.forms.questions import Offers, changed_answers, config_questions, number_faults
from ui.widgets.fields import Answers, draw_widget

_FROZEN = "lora"  # the method that leaves the seed model as it is


def _draw(offers: Offers) -> dict[str, Any]:
    methods = joint_methods()
    name = st.selectbox(
        "Method", list(methods), format_func=lambda name: f"{name}: {methods[name].sentence}", key="train-joint.method"
    )
    method = methods[name]
    if name == _FROZEN and is_untrained(st.session_state.get("train-joint.seed_model", offers["seed_model"][0])):
        st.warning(UNTRAINED)
    groups = {other.config_field for other in methods.values()} - {method.config_field}
    skip = {"method", "options", *groups}
    if not method.only_expert:
        skip.add("retain")  # it is measured under a single expert
    given: Answers = {("method",): name}
    options, faults = _method_options(method)
    if options:
        given["options",] = options
    return {"label": _label(method), "skip": skip, "given": given, "complaints": faults}


def _label(method: Method) -> str:
    """The label of the button: one domain gives one expert."""
    is_one = not method.only_expert and len(st.session_state.get("train-joint.domains", ())) == 1
    return "Train the expert" if is_one else "Train the experts"


def _widgets_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The widgets of the settings of a method that has no group of its own."""
    return {f"train-joint.{spec['method']}.{name}": value for name, value in spec["options"].items()}


def _method_options(method: Method) -> tuple[dict[str, Any], list[str]]:
    """The settings of a method that has no group of its own in the spec, where they differ from its defaults.

    With them what is wrong with their numbers.
    """
    if method.config is None or method.config_field != "options":
        return {}, []
    questions = config_questions(method.name, method.config())
    answers = {question.path: draw_widget("train-joint", question) for question in questions}
    options = {path[-1]: value for path, value in changed_answers(questions, answers).items()}
    return options, number_faults(questions, answers)


def _outcome(label: str, position: int, title: str, about: str, others: str = "new base") -> TrainOutcome:
    method = label.lower()
    return TrainOutcome(title, about, label, others, lambda _: {("method",): method}, position, method == _FROZEN)


FORM = TrainForm(
    title=JOINT,
    about="DEMix and LoRA train one expert for each domain; the experts make a mixture. MoE and dense train one "
    "model on all domains: the baselines that the DEMix paper compares with (§4.2).",
    draw=_draw,
    widgets_of=_widgets_of,
    needs=(DOMAINS, SEED_MODEL),
    outcomes=(
        _outcome("LoRA", 20, "A cheaper expert", "a low-rank change of a frozen seed model", "bit-identical"),
        _outcome("DEMix", 40, TOGETHER, "one base, one feed-forward network for each domain"),
        _outcome(
            "MoE",
            44,
            "One model with a router",
            "copies of its feed-forward networks, of which a router chooses for each token",
        ),
        _outcome("dense", 48, "One model without experts", "all parameters learn from the text of all domains"),
    ),
    position=20,
)
