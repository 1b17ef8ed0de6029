"""The result of a mixture's export."""

from __future__ import annotations

from functools import partial

from ui.kinds.screen import Result, ResultLink, Screen
from ui.present.forms.cli_command import command_line
from ui.present.pages import MIXTURES
from ui.present.text.exports import LOADED_BY
from ui.present.text.formatting import pluralize, size
from workbench.kinds.training.export_mixture import ExportMixture


def _sentence(result: Result) -> str:
    written = f"{pluralize(len(result['weights']), 'expert')} of {result['mixture']} as one model: {result['folder']}"
    return f"{written} ({size(result['num_bytes'])}). Load it with {LOADED_BY[result['format']]}."


SCREEN = Screen(
    command=partial(command_line, "mixture export", ExportMixture, ("mixture", "folder")),
    sentence=_sentence,
    link=ResultLink(MIXTURES, "See the mixture", lambda result: {"mixture": result["mixture"]}),
    form=None,
)
