"""The screen of the reports on replications, whichever the paper; they are submitted by plans."""

from __future__ import annotations

from ui.kinds.screen import Screen
from ui.pages.replications import PAGE
from workbench.kinds.kind import ResultLink

REPORT_SCREEN = Screen(
    command=None,
    sentence=lambda result: str(result["summary"]),
    link=ResultLink(PAGE.address, "See the claims", lambda result: {"replication.name": result["name"]}),
    form=None,
)
