"""Prints a few-shot classification."""

from __future__ import annotations

from ui.cli.output import day, print_rows, say
from ui.present.text.classification import accuracy_rows, cluster_rows, method_words, task_rows
from workbench.registry.cards import ReportCard


def print_classification(report: ReportCard) -> None:
    """Prints its sentence, accuracies by routing and task, clusters by task, and notes."""
    findings = report.findings
    say(f"{report.title} ({day(report.created_at)}, report {report.id[:8]})")
    say(f"{findings['sentence']}\n")
    print_rows(accuracy_rows(findings), empty="The report has no rows.")
    say(f"{method_words(findings)}\n")
    if rows := cluster_rows(findings):
        say("Clusters with the greatest mean weight of their experts:")
        print_rows(rows, empty="The report has no rows.")
        say("")
    print_rows(task_rows(findings), empty="The report has no rows.")
    for note in findings["notes"]:
        say(note)
