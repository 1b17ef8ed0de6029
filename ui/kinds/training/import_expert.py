"""The result of an import of an expert."""

from __future__ import annotations

from functools import partial

from ui.kinds.screen import Screen, TrainForm
from ui.kinds.train_form_parts import SEED_MODEL
from ui.present.forms.cli_command import command_line
from ui.present.forms.questions import Offers
from ui.present.pages import EXPERTS
from ui.widgets.job_form import show_job_form
from workbench.kinds.kind import ResultLink
from workbench.kinds.training.exchange import ImportExpert

_command = partial(command_line, "expert import", ImportExpert, ("source",))


def _draw(offers: Offers) -> None:
    show_job_form("import-expert", offers, "Import it", command=_command)


SCREEN = Screen(
    command=_command,
    sentence=lambda result: (
        f"{result['expert']} is an expert of the method {result['reason']}. {result.get('changes', '')}".rstrip()
    ),
    link=ResultLink(EXPERTS.address, "See the expert", lambda result: {"experts.chosen": [result["expert"]]}),
    form=TrainForm(
        title="Import an expert",
        about="An adapter of PEFT, or a fine-tuned model, trained elsewhere from a seed model of this workbench.",
        draw=_draw,
        needs=(SEED_MODEL,),
        position=90,
    ),
)
