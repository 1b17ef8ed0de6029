"""The result of an export."""

from __future__ import annotations

from functools import partial

from ui.kinds.screen import Result, ResultLink, Screen
from ui.present.forms.cli_command import command_line
from ui.present.pages import EXPERTS
from ui.present.text.exports import LOADED_BY
from ui.present.text.formatting import size
from workbench.kinds.training.export_expert import ExportExpert


def _sentence(result: Result) -> str:
    written = f"{result['expert']} is in {result['folder']} ({size(result['num_bytes'])})"
    return f"{written}: load it with {LOADED_BY[result['format']]}."


SCREEN = Screen(
    command=partial(command_line, "expert export", ExportExpert, ("expert", "folder")),
    sentence=_sentence,
    link=ResultLink(EXPERTS, "See the expert", lambda result: {"experts.chosen": [result["expert"]]}),
    form=None,
)
