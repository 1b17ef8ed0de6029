"""Certifying an addition; its form is on the page Experts."""

from __future__ import annotations

from functools import partial

from ui.kinds.screen import ResultLink, Screen, stored_sentence
from ui.present.forms.cli_command import command_line
from ui.present.pages import EXPERTS
from workbench.kinds.analysis.certify_addition import CertifyAddition

SCREEN = Screen(
    command=partial(command_line, "expert certify", CertifyAddition, ("expert",)),
    sentence=stored_sentence,
    link=ResultLink(EXPERTS, "See the certificate", lambda result: {"experts.chosen": [result["expert"]]}),
    form=None,
)
