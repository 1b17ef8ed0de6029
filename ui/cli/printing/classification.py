"""Prints a few-shot classification."""

from __future__ import annotations

from typing import Any

from ui.cli.output import day, print_table, say
from ui.present.text.classification import accuracy_rows, cluster_rows, method_words, task_rows
from workbench.registry.cards import ReportCard


def print_classification(report: ReportCard) -> None:
    """Prints its sentence, accuracies by routing and task, clusters by task, and notes."""
    findings = report.findings
    say(f"{report.title} ({day(report.created_at)}, report {report.id[:8]})")
    say(f"{findings['sentence']}\n")
    _print(accuracy_rows(findings))
    say(f"{method_words(findings)}\n")
    if rows := cluster_rows(findings):
        say("Clusters with the greatest mean weight of their experts:")
        _print(rows)
        say("")
    _print(task_rows(findings))
    for note in findings["notes"]:
        say(note)


def _print(rows: list[dict[str, Any]]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = [name[:1].upper() + name[1:] for name in names]
    print_table(columns, [[row.get(name) for name in names] for row in rows], empty="The report has no rows.")
