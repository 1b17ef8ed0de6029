"""Prints a report of any sort."""

from __future__ import annotations

from collections.abc import Mapping

from ui.cli.output import day, print_json, print_rows, say
from ui.reports.catalog import report_type
from workbench.answers.cards import ReportCard


def print_report(card: ReportCard) -> None:
    """Prints a report's title, its sentence and what its sort describes."""
    report = report_type(card)
    say(f"{card.title} ({day(card.created_at)}, report {card.id[:8]})")
    if sentence := report.sentence(card.findings):
        say(sentence)
    for part in report.describe(card.findings):
        if isinstance(part, str):
            say(part)
        elif isinstance(part, Mapping):
            print_json(part)
        else:
            print_rows(part, empty="No rows.")
