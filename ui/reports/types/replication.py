"""The replication of a paper: how many of its claims were reproduced."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypedDict

from ui.kinds.screen import ResultLink
from ui.pages.replications import PAGE
from ui.reports.report_type import Part, ReportType
from workbench.formatting.shell_command import shell_command
from workbench.replications.findings import summary


class ReplicationFindings(TypedDict):
    """What the page Replication and `workbench replicate show` read."""

    name: str
    claims: list[dict[str, Any]]
    marks: dict[str, int]
    jobs: list[dict[str, Any]]


def _describe(findings: ReplicationFindings) -> Iterator[Part]:
    yield f"Read its claims: {shell_command('replicate', 'show', findings['name'])}"


REPORT = ReportType(
    name="replication",
    title="Replications",
    findings=ReplicationFindings,
    sentence=summary,
    describe=_describe,
    link=ResultLink(PAGE, "See its claims", lambda findings: {"replication.name": findings["name"]}),
)
