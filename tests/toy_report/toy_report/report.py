"""A sort of report from another package: how many words a domain has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypedDict

from ui.reports.report_type import Part, ReportType


class WordFindings(TypedDict):
    """What the job that counts words has found."""

    domain: str
    num_words: int


def _describe(findings: WordFindings) -> Iterator[Part]:
    yield [{"domain": findings["domain"], "words": findings["num_words"]}]


REPORT = ReportType(
    name="words",
    title="Word counts",
    findings=WordFindings,
    sentence=lambda findings: f"{findings['domain']} has {findings['num_words']:,} words.",
    describe=_describe,
)
