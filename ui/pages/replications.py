"""The page Replication, which follows the reports."""

from __future__ import annotations

from ui.present.pages import REPORTS, Page

PAGE = Page(
    "app_pages/replications.py",
    "Replication",
    ":material/experiment:",
    REPORTS.entry,
    command="replicate",
    after=REPORTS.address,
)
