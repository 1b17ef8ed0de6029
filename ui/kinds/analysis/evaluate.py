"""Scoring experts."""

from __future__ import annotations

from functools import partial

from ui.kinds.screen import Screen, TrainForm
from ui.kinds.train_form_parts import MIXTURE
from ui.present.forms.cli_command import command_line
from ui.present.forms.questions import Offers
from ui.present.pages import EVALUATION, SPECIALIZATION
from ui.present.text.formatting import pluralize
from ui.widgets.job_form import show_job_form
from workbench.kinds.analysis import Evaluate
from workbench.kinds.kind import Result, ResultLink

_command = partial(command_line, "evaluate run", Evaluate, ("mixture",))


def _draw(offers: Offers) -> None:
    show_job_form("evaluate", offers, "Score the experts", command=_command, skip=("experts",))


def _sentence(result: Result) -> str:
    """The stored sentence; of results from before there was one, how many scores were made."""
    made = f"{pluralize(result['scored'], 'pair')} of expert and domain scored."
    return str(result.get("sentence") or f"{made} {result.get('calibration', '')}".strip())


SCREEN = Screen(
    command=_command,
    sentence=_sentence,
    link=ResultLink(
        SPECIALIZATION.address, "See the specialization", lambda result: {"specialization.mixture": result["mixture"]}
    ),
    form=TrainForm(
        title=EVALUATION,
        about="Scores every expert on held-out text, once; toggles, weights and heatmaps read those scores.",
        draw=_draw,
        needs=(MIXTURE,),
        position=60,
    ),
)
