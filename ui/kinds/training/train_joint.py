"""Training a DEMix model or one of its baselines."""

from __future__ import annotations

from functools import partial

import streamlit as st

from engine.training.methods import METHODS
from ui.kinds.screen import ResultLink, Screen, TrainForm
from ui.kinds.train_form_parts import DOMAINS, JOINT, SEED_MODEL
from ui.present.cli_command import command_line
from ui.present.pages import EXPERTS
from ui.present.questions import Offers
from ui.present.text.formatting import pluralize
from ui.studio.forms.job_form import ask_for
from workbench.kinds.training.train_joint import TrainJoint


def _draw(offers: Offers) -> None:
    method = st.selectbox(
        "Method", list(METHODS), format_func=lambda name: f"{name}: {METHODS[name].sentence}", key="train-joint.method"
    )
    others = [group for group in ("lora", "moe") if group != METHODS[method].asks]
    if not METHODS[method].only_expert:
        others.append("retain")  # needs a single expert
    ask_for("train-joint", offers, "Train the experts", skip=("method", *others), given={("method",): method})


SCREEN = Screen(
    command=partial(command_line, "train joint", TrainJoint, ("name",)),
    sentence=lambda result: f"{pluralize(len(result['experts']), 'expert')} in the mixture {result['mixture']}.",
    link=ResultLink(EXPERTS, "See the experts", lambda result: {"experts.chosen": result["experts"]}),
    form=TrainForm(
        title=JOINT,
        about="One expert for each domain, everything else shared; the experts make a mixture (DEMix §3). "
        "Or one of the baselines that the paper compares it with (§4.2).",
        draw=_draw,
        needs=(DOMAINS, SEED_MODEL),
        position=20,
    ),
)
