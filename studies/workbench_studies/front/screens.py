"""How replications are shown: the studio's page and the sort of report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict

from ui.present.pages import REPORTS, Page
from ui.reports.report_type import Part, ReportType
from workbench.formatting.shell_command import shell_command
from workbench.kinds.kind import ResultLink
from workbench_studies.core.verdicts import summary

PAGE = Page(
    str(Path(__file__).with_name("replications.py")),
    "Replication",
    ":material/experiment:",
    REPORTS.entry,
    command="replicate",
    after=REPORTS.address,
    help="replication/README.md",
)


class ReplicationFindings(TypedDict):
    """What the page Replication and `workbench replicate show` read."""

    name: str
    claims: list[dict[str, Any]]
    marks: dict[str, int]
    jobs: list[dict[str, Any]]


def _describe_marks(findings: ReplicationFindings) -> str:
    """The counts of marks by today's rule, as on the page: reports of before were judged by another."""
    from workbench_studies.papers.todays_rule import with_todays_marks

    return summary(with_todays_marks(dict(findings)))


def _describe(findings: ReplicationFindings) -> Iterator[Part]:
    yield f"Read its claims: {shell_command('replicate', 'show', findings['name'])}"


REPORT = ReportType(
    name="replication",
    title="Replications",
    findings=ReplicationFindings,
    sentence=_describe_marks,
    describe=_describe,
    link=ResultLink(PAGE.address, "See its claims", lambda findings: {"replication.name": findings["name"]}),
)
