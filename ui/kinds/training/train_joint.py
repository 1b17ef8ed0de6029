"""The form that trains on all domains together: DEMix, LoRA, MoE, dense, or a method of a plug-in."""

from __future__ import annotations

from functools import partial
from typing import Any

import streamlit as st

from engine.methods.base import Method
from engine.methods.registry import get_method, joint_methods
from ui.kinds.form import DOMAINS, JOINT, SEED_MODEL, TOGETHER, UNTRAINED, TrainForm, TrainOutcome
from ui.kinds.training.method_choice import choose_method, option_widgets
from ui.present.forms.form_choices import is_untrained
from ui.present.forms.questions import Answers, Offers


def _draw(offers: Offers) -> dict[str, Any]:
    method, form = choose_method("train-joint", joint_methods())
    seed_model = st.session_state.get("train-joint.seed_model", offers["seed_model"][0])
    if method.base_is_frozen and is_untrained(seed_model):
        st.warning(UNTRAINED)
    if not method.only_expert:
        form["skip"].add("retain")  # it is measured under a single expert
    return {"label": _label(method), **form}


def _label(method: Method) -> str:
    """The label of the button: one domain gives one expert."""
    is_one = not method.only_expert and len(st.session_state.get("train-joint.domains", ())) == 1
    return "Train the expert" if is_one else "Train the experts"


def _outcome(label: str, position: int, title: str, about: str, others: str = "new base") -> TrainOutcome:
    method = get_method(label.lower())
    answers: Answers = {("method",): method.name}
    return TrainOutcome(title, about, label, others, lambda _: answers, position, method.base_is_frozen)


FORM = TrainForm(
    title=JOINT,
    about="DEMix and LoRA train one expert for each domain; the experts make a mixture. MoE and dense train one "
    "model on all domains: the baselines that the DEMix paper compares with (§4.2).",
    tucked=("retain", "num_gpus", "gpu_share"),
    draw=_draw,
    widgets_of=partial(option_widgets, "train-joint"),
    methods=joint_methods,
    needs=(DOMAINS, SEED_MODEL),
    outcomes=(
        _outcome("LoRA", 20, "A cheaper expert", "a low-rank change of a frozen seed model", "bit-identical"),
        _outcome("DEMix", 40, TOGETHER, "one base, one feed-forward network for each domain"),
        _outcome(
            "MoE",
            44,
            "One model with a router",
            "copies of its feed-forward networks; a router chooses among them for each token",
        ),
        _outcome("dense", 48, "One model without experts", "all parameters learn from the text of all domains"),
    ),
    position=20,
)
