"""What a sort of report is: its findings, and how the command line and the studio show them.

A module of `ui.reports.types` offers one as `REPORT`, another package as an entry point:

    [project.entry-points."expert_workbench.reports"]
    words = "word_count.report:REPORT"
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypedDict, TypeVar

from workbench.kinds.kind import ResultLink

Findings = TypeVar("Findings", bound=Mapping[str, Any])
Rows = Sequence[Mapping[str, Any]]
Part = str | Rows | Mapping[str, Any]  # a paragraph (empty: a blank line), a table, or values shown as JSON


class Reproducible(TypedDict, total=False):
    """Older reports lack the key. It is inherited, because `NotRequired` is not seen in annotations that are text."""

    reproducible_from: str


def stored_sentence(findings: Mapping[str, Any]) -> str:
    """The sentence that the job put into the findings; empty without one."""
    return str(findings.get("sentence", ""))


@dataclass(frozen=True, kw_only=True)
class ReportType(Generic[Findings]):
    """A sort of report. Findings that lack a required key of `findings`, a TypedDict, are shown as JSON."""

    name: str  # the kind that its reports are stored with
    title: str  # in the choice of what to list
    findings: type[Findings]
    sentence: Callable[[Findings], str] = stored_sentence
    describe: Callable[[Findings], Iterable[Part]]  # what a terminal prints after the sentence
    draw: str = ""  # `package.module:function` of a report's card; without it the studio shows what a terminal prints
    link: ResultLink | None = None  # the page that shows more of it
