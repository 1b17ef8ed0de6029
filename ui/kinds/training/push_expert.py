"""The result of an upload."""

from __future__ import annotations

from functools import partial

from ui.kinds.screen import ResultLink, Screen
from ui.present.forms.cli_command import command_line
from ui.present.pages import EXPERTS
from workbench.kinds.training.push_expert import PushExpert

SCREEN = Screen(
    command=partial(command_line, "expert push", PushExpert, ("expert", "repository")),
    sentence=lambda result: f"{result['expert']} is at {result['url']} (commit {result['commit']}).",
    link=ResultLink(EXPERTS, "See the expert", lambda result: {"experts.chosen": [result["expert"]]}),
    form=None,
)
