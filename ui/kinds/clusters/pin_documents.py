"""Pinning documents; its form is on the page Clusters."""

from __future__ import annotations

from functools import partial

from ui.kinds.screen import Screen, stored_sentence
from ui.present.forms.cli_command import command_line
from workbench.kinds.clusters.pin_documents import PinDocuments

SCREEN = Screen(
    command=partial(command_line, "cluster pin", PinDocuments, ("clustering", "cluster")),
    sentence=stored_sentence,
    link=None,
    form=None,
)
