"""Composing MoDE experts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import streamlit as st

from ui.kinds.screen import Screen, TrainForm
from ui.kinds.train_form_parts import MODE_EXPERT
from ui.kinds.training.train_mode import describe_parts
from ui.present.forms.cli_command import command_line
from ui.present.forms.form_choices import backbones, offers_for_composition
from ui.present.forms.questions import Offers
from ui.present.pages import COMPOSITION, EXPERTS
from ui.widgets.fields import drop_unknown
from ui.widgets.job_form import show_job_form
from workbench.kinds.kind import ResultLink
from workbench.kinds.training.compose_mode import ComposeMode

_command = partial(command_line, "mode compose", ComposeMode, ("name",))


def _draw(offers: Offers) -> None:
    experts = backbones()
    drop_unknown("compose-mode.backbone", experts)
    backbone = st.selectbox(
        "Backbone",
        list(experts),
        key="compose-mode.backbone",
        help="Experts stand side by side on the seed model that they were trained beside, in as many blocks.",
    )
    choices = offers_for_composition(backbone, st.session_state.get("compose-mode.experts", ()))
    for field, names in choices.items():
        drop_unknown(f"compose-mode.{field}", names)
    show_job_form("compose-mode", {**offers, **choices}, "Compose them", command=_command)


def _widgets_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The backbone of the experts, unless one of them is gone."""
    experts = set(spec["experts"])
    name = next((name for name, known in backbones().items() if experts <= set(known)), None)
    return {"compose-mode.backbone": name} if name else {}


SCREEN = Screen(
    command=_command,
    sentence=describe_parts,
    link=ResultLink(EXPERTS.address, "See the composition", lambda result: {"experts.chosen": [result["expert"]]}),
    form=TrainForm(
        title=COMPOSITION,
        about="Experts of MoDE side by side on their backbone, weighed token by token by gates that learn together "
        "on mixed text (MoDE §3.2, stage 2). The experts that it is made of do not change.",
        draw=_draw,
        widgets_of=_widgets_of,
        needs=(MODE_EXPERT,),
        position=50,
    ),
)
