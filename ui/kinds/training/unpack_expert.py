"""The result of unpacking an expert."""

from __future__ import annotations

from functools import partial

from ui.kinds.screen import Result, ResultLink, Screen
from ui.present.forms.cli_command import command_line
from ui.present.pages import EXPERTS
from workbench.kinds.training.unpack_expert import UnpackExpert


def _sentence(result: Result) -> str:
    seed = f", and the seed model {result['new_seed']}" if result["new_seed"] else ""
    return f"{result['expert']} is unpacked{seed}."


SCREEN = Screen(
    command=partial(command_line, "expert unpack", UnpackExpert, ("file",)),
    sentence=_sentence,
    link=ResultLink(EXPERTS, "See the expert", lambda result: {"experts.chosen": [result["expert"]]}),
    form=None,
)
