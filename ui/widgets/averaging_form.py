"""The form of a parameter average: which experts, and how much each of them counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from ui.present.forms.questions import Offers, questions_of
from ui.present.text.formatting import plain
from ui.widgets.fields import Answers, draw_widget
from ui.widgets.job_form import show_job_form
from workbench.kinds.training.average_experts import AverageExperts

_KIND = "average-experts"


def show_average_form(offers: Offers, command: Callable[[Answers], str]) -> None:
    """The form; `command` is its Screen's."""
    questions = {question.path[0]: question for question in questions_of(AverageExperts, offers)}
    chosen = draw_widget(_KIND, questions["experts"])
    weights = None
    if chosen and st.checkbox("Weigh them by hand", key=f"{_KIND}.by_hand", help=questions["weights"].help):
        weights = _draw_weights(chosen)
    given: Answers = {("experts",): chosen, ("weights",): weights}
    show_job_form(_KIND, offers, "Average them", command=command, skip=("experts", "weights"), given=given)


def _draw_weights(experts: Sequence[str]) -> list[float]:
    columns = st.columns(3)
    return [
        columns[place % 3].number_input(
            f"Weight of {plain(name)}", min_value=0.0, value=1.0, step=0.1, key=f"{_KIND}.weight.{name}"
        )
        for place, name in enumerate(experts)
    ]
