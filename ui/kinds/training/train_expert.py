"""The form that trains one more expert."""

from __future__ import annotations

from typing import Any

import streamlit as st

from jobs.queue.submit import submit
from ui.kinds.form import DOMAINS, EXPERT, MIXTURE, MIXTURE_TO_EXTEND, TrainForm, TrainOutcome
from ui.present.forms.form_choices import offers_for_expert
from ui.present.forms.questions import Offers
from ui.widgets.fields import drop_unknown
from ui.widgets.parents import show_proposal


def _draw(offers: Offers) -> dict[str, Any]:
    mixtures = offers["mixture_to_extend"]
    drop_unknown("train-expert.mixture", mixtures)
    mixture = st.session_state.get("train-expert.mixture", mixtures[0])
    choices = offers_for_expert(mixture)
    drop_unknown("train-expert.parent", (None, *choices["parent"]))
    chosen = st.session_state.get("train-expert.domain")
    show_proposal(mixture, chosen if chosen in choices["domain"] else choices["domain"][0])
    certify = st.checkbox(
        "Score and certify its addition afterwards",
        value=True,
        key="train-expert.certify",
        help="A job after the training scores the expert, certifies that no existing file changed, and says what each "
        "domain gained.",
    )
    ending = {} if certify else {"send": submit, "beside": {("certificate",): False}}
    return {"offers": {**offers, "mixture": mixtures, **choices}, **ending}


FORM = TrainForm(
    title=EXPERT,
    about="A copy of a parent expert learns one more domain; everything else stays bit-identical (DEMix §6).",
    label="Train the expert",
    tucked=("join", "full_model", "watch", "gpu_share"),
    draw=_draw,
    needs=(DOMAINS, MIXTURE, MIXTURE_TO_EXTEND),
    outcomes=(
        TrainOutcome(
            "One more expert",
            "copies the nearest expert and trains the copy",
            "DEMix",
            "bit-identical",
            lambda offers: {("mixture",): offers["mixture_to_extend"][0]},
            position=10,
        ),
    ),
    position=30,
)
