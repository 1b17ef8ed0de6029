"""A few-shot classification: how often each routing was right, and which clusters it used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypedDict

from ui.present.text.classification import accuracy_rows, cluster_rows, method_words, task_rows
from ui.reports.report_type import Part, ReportType


class ClassificationFindings(TypedDict):
    """What was measured."""

    sentence: str
    rows: list[dict[str, Any]]  # one for each routing: shares of right answers by task, and on average
    tasks: list[dict[str, Any]]
    notes: list[str]
    num_shots: int
    num_seeds: int
    normalise: str
    confidence: float


def _describe(findings: ClassificationFindings) -> Iterator[Part]:
    yield ""
    yield accuracy_rows(findings) or "The report has no rows."
    yield method_words(findings)
    yield ""
    if rows := cluster_rows(findings):
        yield "Clusters with the greatest mean weight of their experts:"
        yield rows
        yield ""
    yield task_rows(findings) or "The report has no rows."
    yield from findings["notes"]


REPORT = ReportType(
    name="classification",
    title="Classifications",
    findings=ClassificationFindings,
    describe=_describe,
    draw="ui.studio.experts.certificates:show_classification",
)
