"""Few-shot classification."""

from __future__ import annotations

from functools import partial

from ui.kinds.screen import Screen, TrainForm
from ui.kinds.train_form_parts import CLASSIFY, MIXTURE
from ui.present.forms.cli_command import command_line
from ui.present.forms.questions import Offers
from ui.present.pages import REPORTS
from ui.widgets.job_form import show_job_form
from workbench.kinds.analysis import Classify
from workbench.kinds.kind import ResultLink, stored_sentence

_COUNTS = ("top_k", "num_shots", "num_validation", "num_seeds", "max_examples", "normalise", "newest_weight")

_command = partial(command_line, "evaluate classify", Classify, ("mixture", "path"))


def _draw(offers: Offers) -> None:
    show_job_form("classify", offers, "Classify the texts", command=_command, tucked=_COUNTS)


SCREEN = Screen(
    command=_command,
    sentence=stored_sentence,
    link=ResultLink(REPORTS.address, "See the report", lambda result: {"reports.chosen": result["report"]}),
    form=TrainForm(
        title=CLASSIFY,
        about="Classifies labelled texts from a few demonstrations, with each routing method (C-BTM §5).",
        draw=_draw,
        needs=(MIXTURE,),
        position=80,
    ),
)
