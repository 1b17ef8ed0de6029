"""The form that composes experts with parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from ui.kinds.form import MODE_EXPERT, TrainForm
from ui.present.forms.form_choices import backbones, offers_for_composition
from ui.present.forms.questions import Offers
from ui.present.pages import COMPOSITION
from ui.widgets.fields import drop_unknown


def _draw(offers: Offers) -> dict[str, Any]:
    experts = backbones()
    drop_unknown("compose-mode.backbone", experts)
    backbone = st.selectbox(
        "Backbone",
        list(experts),
        key="compose-mode.backbone",
        help="Experts stand side by side on the seed model that they were trained on, in as many blocks.",
    )
    choices = offers_for_composition(backbone, st.session_state.get("compose-mode.experts", ()))
    for field, names in choices.items():
        drop_unknown(f"compose-mode.{field}", names)
    return {"offers": {**offers, **choices}}


def _widgets_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The backbone of the experts, unless one of them is gone."""
    experts = set(spec["experts"])
    name = next((name for name, known in backbones().items() if experts <= set(known)), None)
    return {"compose-mode.backbone": name} if name else {}


FORM = TrainForm(
    title=COMPOSITION,
    tucked=("without", "frozen", "retain", "gpu_share"),
    about="Experts with parts side by side on their backbone, weighed token by token by gates that learn together "
    "on mixed text (MoDE §3.2, stage 2). The experts that it is made of do not change.",
    label="Compose them",
    draw=_draw,
    widgets_of=_widgets_of,
    needs=(MODE_EXPERT,),
    position=50,
)
