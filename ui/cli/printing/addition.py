"""Prints the certificate of an addition."""

from __future__ import annotations

from ui.cli.output import day, print_rows, say
from ui.present.text.addition import change_rows, folder_rows, single_words
from ui.present.text.formatting import pluralize
from workbench.registry.cards import ReportCard


def print_addition(report: ReportCard, num_older: int = 0) -> None:
    """Prints a certificate: its sentence, then its numbers."""
    findings = report.findings
    say(f"{report.title} ({day(report.created_at)}, report {report.id[:8]})")
    say(f"{findings['sentence']}\n")
    print_rows(change_rows(findings), empty="The certificate has no perplexities.")
    if words := single_words(findings):
        say(words)
    say("")
    print_rows(folder_rows(findings), empty="There were no files before.")
    if reproducible_from := findings.get("reproducible_from"):
        say(f"\nReproducible from: {reproducible_from}")
    if num_older:
        say(f"{pluralize(num_older, 'older certificate')}: --json prints them all.")
