"""Prints the certificate of an addition."""

from __future__ import annotations

from typing import Any

from ui.cli.output import day, print_table, say
from ui.present.text.addition import change_rows, folder_rows, single_words
from ui.present.text.formatting import pluralize
from workbench.registry.cards import ReportCard


def print_addition(report: ReportCard, num_older: int = 0) -> None:
    """Prints a certificate: its sentence, then its numbers."""
    findings = report.findings
    say(f"{report.title} ({day(report.created_at)}, report {report.id[:8]})")
    say(f"{findings['sentence']}\n")
    _print(change_rows(findings), "The certificate has no perplexities.")
    if words := single_words(findings):
        say(words)
    say("")
    _print(folder_rows(findings), "There were no files before.")
    if num_older:
        say(f"{pluralize(num_older, 'older certificate')}: --json prints them all.")


def _print(rows: list[dict[str, Any]], empty: str) -> None:
    columns = [name[:1].upper() + name[1:] for name in (rows[0] if rows else ())]
    print_table(columns, [list(row.values()) for row in rows], empty=empty)
