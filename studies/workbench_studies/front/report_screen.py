"""The screen of the reports on replications, whichever the paper; they are submitted by plans."""

from __future__ import annotations

from ui.kinds.screen import ResultLink, Screen
from ui.pages.replications import PAGE

REPORT_SCREEN = Screen(
    command=None,
    sentence=lambda result: str(result["summary"]),
    link=ResultLink(PAGE, "See the claims", lambda result: {"replication.name": result["name"]}),
    form=None,
)
