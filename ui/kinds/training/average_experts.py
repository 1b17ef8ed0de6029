"""The form of a parameter average: which experts, and how much each of them counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from ui.kinds.form import AVERAGE, EXPERTS, PARENT, TrainForm
from ui.present.forms.questions import Offers, questions_of
from ui.widgets.fields import draw_number, draw_widget
from workbench.kinds.training.mixtures import AverageExperts

_KIND = "average-experts"


def _draw(offers: Offers) -> dict[str, Any]:
    offers = {**offers, "experts": offers["parent"]}  # full models, such as can be copied
    questions = {question.path[0]: question for question in questions_of(AverageExperts, offers)}
    chosen = draw_widget(_KIND, questions["experts"])
    weights, faults = None, list[str]()
    if chosen and st.checkbox("Weigh them by hand", key=f"{_KIND}.by_hand", help=questions["weights"].help):
        weights, faults = _draw_weights(chosen)
    given = {("experts",): chosen, ("weights",): weights}
    return {"offers": offers, "skip": ("experts", "weights"), "given": given, "complaints": faults}


def _draw_weights(experts: Sequence[str]) -> tuple[list[float], list[str]]:
    columns = st.columns(3)
    numbers = [
        draw_number(
            f"Weight of {name}",
            key=f"{_KIND}.weight.{name}",
            default=1.0,
            lowest=0,
            is_integer=False,
            step=0.1,
            container=columns[index % 3],
        )
        for index, name in enumerate(experts)
    ]
    return [number.value for number in numbers], [number.fault for number in numbers if number.fault]


def _widgets_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The weights that were given by hand, if they were."""
    if spec["weights"] is None:
        return {f"{_KIND}.by_hand": False}
    by_name = zip(spec["experts"], spec["weights"], strict=True)
    return {f"{_KIND}.by_hand": True} | {f"{_KIND}.weight.{name}": value for name, value in by_name}


FORM = TrainForm(
    title=AVERAGE,
    about="One model made from several: the weighted average of their parameters (BTM). It costs what one of them "
    "does.",
    label="Average them",
    draw=_draw,
    widgets_of=_widgets_of,
    needs=(EXPERTS, PARENT),
    position=70,
)
