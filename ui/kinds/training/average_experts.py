"""Averaging experts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from ui.kinds.screen import Screen, TrainForm
from ui.kinds.train_form_parts import AVERAGE, PARENT
from ui.kinds.train_form_parts import EXPERTS as EXPERTS_NEEDED
from ui.present.forms.cli_command import command_line
from ui.present.forms.questions import Offers
from ui.present.pages import EXPERTS
from ui.present.text.formatting import pluralize
from ui.widgets.averaging_form import show_average_form
from workbench.kinds.kind import ResultLink
from workbench.kinds.training.mixtures import AverageExperts

_command = partial(command_line, "mixture average", AverageExperts, ("name",))


def _draw(offers: Offers) -> None:
    show_average_form({**offers, "experts": offers["parent"]}, _command)  # full models, such as can be copied


def _widgets_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The weights that were given by hand, if they were."""
    if spec["weights"] is None:
        return {"average-experts.by_hand": False}
    by_name = zip(spec["experts"], spec["weights"], strict=True)
    return {"average-experts.by_hand": True} | {f"average-experts.weight.{name}": value for name, value in by_name}


SCREEN = Screen(
    command=_command,
    sentence=lambda result: (
        f"{pluralize(len(result['weights']), 'expert')} averaged in the mixture {result['mixture']}."
    ),
    link=ResultLink(EXPERTS.address, "See the average", lambda result: {"experts.chosen": [result["expert"]]}),
    form=TrainForm(
        title=AVERAGE,
        about="One model made from several: the weighted average of their parameters (BTM). It costs what one of them "
        "does.",
        draw=_draw,
        widgets_of=_widgets_of,
        needs=(EXPERTS_NEEDED, PARENT),
        position=70,
    ),
)
