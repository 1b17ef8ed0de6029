"""The result of packing an expert."""

from __future__ import annotations

from functools import partial

from ui.kinds.screen import Result, ResultLink, Screen
from ui.present.forms.cli_command import command_line
from ui.present.pages import EXPERTS
from ui.present.text.formatting import size
from workbench.kinds.training.pack_expert import PackExpert


def _sentence(result: Result) -> str:
    seed = " with its seed model" if result["with_seed"] else ""
    return f"{result['expert']}{seed} is in {result['file']} ({size(result['num_bytes'])})."


SCREEN = Screen(
    command=partial(command_line, "expert pack", PackExpert, ("expert", "file")),
    sentence=_sentence,
    link=ResultLink(EXPERTS, "See the expert", lambda result: {"experts.chosen": [result["expert"]]}),
    form=None,
)
