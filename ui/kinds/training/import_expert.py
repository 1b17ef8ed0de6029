"""The result of an import of an expert."""

from __future__ import annotations

from functools import partial

from ui.kinds.screen import ResultLink, Screen
from ui.present.cli_command import command_line
from ui.present.pages import EXPERTS
from workbench.kinds.training.import_expert import ImportExpert

SCREEN = Screen(
    command=partial(command_line, "expert import", ImportExpert, ("source",)),
    sentence=lambda result: f"{result['expert']} is an expert of the method {result['reason']}.",
    link=ResultLink(EXPERTS, "See the expert", lambda result: {"experts.chosen": [result["expert"]]}),
    form=None,
)
