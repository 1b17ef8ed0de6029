"""The form of a parameter average: which experts, and how much each of them counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from ui.present.forms.questions import Offers, questions_of
from ui.widgets.fields import Answers, draw_widget
from ui.widgets.job_form import show_job_form
from ui.widgets.numbers import draw_number
from workbench.kinds.training.mixtures import AverageExperts

_KIND = "average-experts"


def show_average_form(offers: Offers, command: Callable[[Answers], str]) -> None:
    """The form; `command` is its Screen's."""
    questions = {question.path[0]: question for question in questions_of(AverageExperts, offers)}
    chosen = draw_widget(_KIND, questions["experts"])
    weights, faults = None, list[str]()
    if chosen and st.checkbox("Weigh them by hand", key=f"{_KIND}.by_hand", help=questions["weights"].help):
        weights, faults = _draw_weights(chosen)
    given: Answers = {("experts",): chosen, ("weights",): weights}
    show_job_form(
        _KIND, offers, "Average them", command=command, skip=("experts", "weights"), given=given, complaints=faults
    )


def _draw_weights(experts: Sequence[str]) -> tuple[list[float], list[str]]:
    """The weights, and what is wrong with them."""
    columns = st.columns(3)
    weights, faults = list[float](), list[str]()
    for place, name in enumerate(experts):
        weight, fault = draw_number(
            f"Weight of {name}",
            key=f"{_KIND}.weight.{name}",
            default=1.0,
            lowest=0,
            is_integer=False,
            step=0.1,
            place=columns[place % 3],
        )
        weights.append(weight)
        faults += [fault] if fault else []
    return weights, faults
