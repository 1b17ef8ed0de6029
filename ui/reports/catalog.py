"""The sorts of report there are, and the one that reads a stored report."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from engine.plugins import find_plugins, missing_package
from ui.reports.report_type import Part, ReportType, stored_sentence
from workbench.answers.cards import ReportCard

GROUP = "expert_workbench.reports"  # of entry points


@cache
def report_types() -> dict[str, ReportType[Any]]:
    """Every sort of report by its name. Raises BadPluginError."""
    return find_plugins("ui.reports.types", GROUP, "REPORT", ReportType, lambda report: report.name)


def report_type(card: ReportCard) -> ReportType[Any]:
    """The sort of a report; where no installed package reads it, one that says so and shows its JSON."""
    known = report_types().get(card.kind)
    if known is None:
        why = f"No installed package knows reports of the kind “{card.kind}”: these are its values."
        return _as_json(card.kind, f"{why} {missing_package(card.kind)}".rstrip())
    keys: frozenset[str] = getattr(known.findings, "__required_keys__", frozenset())
    if missing := sorted(keys - card.findings.keys()):
        return _as_json(card.kind, f"This report has no {', '.join(missing)}: these are its values.")
    return known


def report_sentence(card: ReportCard) -> str:
    """What a report says, in a sentence; empty if it has none."""
    try:
        return report_type(card).sentence(card.findings)
    except Exception as error:  # of another package: the other reports are listed
        return f"Its package cannot say what it is: {type(error).__name__}: {error}"


def _as_json(kind: str, why: str) -> ReportType[Any]:
    def describe(findings: dict[str, Any]) -> Iterator[Part]:
        yield why
        yield findings

    return ReportType(name=kind, title=kind, findings=dict, sentence=stored_sentence, describe=describe)
