"""Measuring the overlap of domains; its button is on the page Specialization."""

from __future__ import annotations

from functools import partial

from ui.kinds.screen import ResultLink, Screen
from ui.present.forms.cli_command import command_line
from ui.present.pages import SHARED_TEXT, SPECIALIZATION
from ui.present.text.formatting import pluralize
from workbench.kinds.analysis.measure_overlap import MeasureOverlap

SCREEN = Screen(
    command=partial(command_line, "evaluate overlap", MeasureOverlap, ()),
    sentence=lambda result: f"The overlap of every pair of {pluralize(len(result['domains']), 'domain')} is measured.",
    link=ResultLink(SPECIALIZATION, "See what it explains", lambda _: {"specialization.view": SHARED_TEXT}),
    form=None,
)
