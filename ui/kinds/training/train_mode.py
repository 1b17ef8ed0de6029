"""Training an expert with parts: of MoDE, or of an installed method."""

from __future__ import annotations

from functools import partial

import streamlit as st

from engine.methods.mode.config import ModeConfig
from engine.methods.parts.method import parts_methods
from ui.kinds.screen import Outcome, Screen, TrainForm
from ui.kinds.train_form_parts import DOMAINS, MODE, SEED_MODEL, UNTRAINED
from ui.kinds.training.method_choice import choose_method, option_widgets
from ui.present.forms.cli_command import command_line
from ui.present.forms.form_choices import is_untrained, num_layers
from ui.present.forms.questions import Offers
from ui.present.pages import EXPERTS
from ui.present.text.formatting import listed
from ui.widgets.fields import drop_unknown
from ui.widgets.job_form import show_job_form
from workbench.kinds.kind import Result, ResultLink
from workbench.kinds.training.train_mode import TrainMode

_BLOCKS = "train-mode.shape.num_blocks"
_MEASURE = "train-mode.blocks_of"  # the seed model whose layers the number of blocks was held to

_command = partial(command_line, "train mode", TrainMode, ("name",))


def _draw(offers: Offers) -> None:
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
    limits: dict[tuple[str, ...], int] = {("shape", "num_blocks"): most}
    show_job_form("train-mode", offers, "Train the expert", command=_command, limits=limits, **form)


def _usual_blocks(seed_model: str) -> int:
    return min(ModeConfig().num_blocks, num_layers(seed_model))


def describe_parts(result: Result) -> str:
    """Its parts, their size and its mixture."""
    parts, size = listed(result["parts"]), f"{result['num_parameters']:,}"
    return f"{parts} beside the backbone, {size} parameters of their own, in the mixture {result['mixture']}."


SCREEN = Screen(
    command=_command,
    sentence=describe_parts,
    link=ResultLink(EXPERTS.address, "See the expert", lambda result: {"experts.chosen": [result["expert"]]}),
    form=TrainForm(
        title=MODE,
        about="A few transformer layers and a gate, in parallel to a seed model that stays as it is "
        "(MoDE §3.2, stage 1).",
        draw=_draw,
        widgets_of=partial(option_widgets, "train-mode"),
        methods=parts_methods,
        needs=(DOMAINS, SEED_MODEL),
        outcomes=(
            Outcome(
                "An expert beside a frozen backbone",
                "layers that can be composed with gates",
                "MoDE",
                "bit-identical",
                lambda offers: {("shape", "num_blocks"): _usual_blocks(offers["seed_model"][0])},
                position=30,
                freezes_seed=True,
            ),
        ),
        position=40,
    ),
)
