"""The form that trains an expert with parts: of MoDE, or of an installed method."""

from __future__ import annotations

from functools import partial
from typing import Any

import streamlit as st

from engine.methods.mode.config import ModeConfig
from engine.methods.parts.method import parts_methods
from ui.kinds.form import DOMAINS, MODE, SEED_MODEL, UNTRAINED, TrainForm, TrainOutcome
from ui.kinds.training.method_choice import choose_method, option_widgets
from ui.present.forms.form_choices import is_untrained, num_layers
from ui.present.forms.questions import Offers
from ui.widgets.fields import drop_unknown

_BLOCKS = "train-mode.shape.num_blocks"
_MEASURE = "train-mode.blocks_of"  # the seed model whose layers the number of blocks was held to


def _draw(offers: Offers) -> dict[str, Any]:
    _, form = choose_method("train-mode", parts_methods())
    drop_unknown("train-mode.seed_model", offers["seed_model"])
    seed_model = st.session_state.get("train-mode.seed_model", offers["seed_model"][0])
    if is_untrained(seed_model):
        st.warning(UNTRAINED)
    most = num_layers(seed_model)
    if st.session_state.get(_MEASURE) != seed_model:  # a larger number that is written afterwards is a fault
        st.session_state[_MEASURE] = seed_model
        if st.session_state.get(_BLOCKS, 1) > most:
            st.session_state[_BLOCKS] = most
    return {"limits": {("shape", "num_blocks"): most}, **form}


FORM = TrainForm(
    title=MODE,
    tucked=("num_parts", "retain", "gpu_share"),
    about="A few transformer layers and a gate, in parallel to a seed model that stays as it is (MoDE §3.2, stage 1).",
    label="Train the expert",
    draw=_draw,
    widgets_of=partial(option_widgets, "train-mode"),
    methods=parts_methods,
    needs=(DOMAINS, SEED_MODEL),
    outcomes=(
        TrainOutcome(
            "An expert next to a frozen backbone",
            "layers that can be composed with gates",
            "MoDE",
            "bit-identical",
            lambda offers: {("shape", "num_blocks"): min(ModeConfig().num_blocks, num_layers(offers["seed_model"][0]))},
            position=30,
            freezes_seed=True,
        ),
    ),
    position=40,
)
