"""How the studio shows the counting of words."""

from __future__ import annotations

from ui.kinds.screen import Screen, TrainForm
from ui.kinds.train_form_parts import DOMAINS
from ui.present.forms.questions import Offers
from ui.present.pages import REPORTS
from ui.widgets.job_form import show_job_form
from workbench.kinds.kind import ResultLink


def _draw(offers: Offers) -> None:
    show_job_form("count-words", offers, "Count the words", command=None)


SCREEN = Screen(
    command=None,
    sentence=lambda result: f"{result['domain']} has {result['num_words']:,} words.",
    link=ResultLink(REPORTS.address, "See the report", lambda result: {"reports.chosen": result["report"]}),
    form=TrainForm(title="Word count", about="How many words a domain has.", draw=_draw, needs=(DOMAINS,)),
)
