"""Prints the effects of removing an expert."""

from __future__ import annotations

from collections.abc import Iterable

from ui.cli.output import day, print_rows, say
from ui.present.text.removal import extraction_rows, extraction_words, perplexity_rows, prior_words
from workbench.questions.removal import DomainRemoval
from workbench.registry.cards import ReportCard


def print_certificate(report: ReportCard) -> None:
    """Prints a certificate: its sentence, then its numbers."""
    findings = report.findings
    say(f"{report.title} ({day(report.created_at)}, report {report.id[:8]})")
    say(findings["sentence"])
    say(f"\n{prior_words(findings)}")
    rows = [DomainRemoval.model_validate(row) for row in findings["perplexity"]]
    print_removal(rows)
    for row in rows:
        if row.why:
            say(f"{row.domain}: {row.why}")
    say(f"\n{extraction_words(findings['extraction'])}")
    print_rows(extraction_rows(findings["extraction"]), empty="No rows.")
    say(f"\n{findings['not_removed']}")
    if reproducible_from := findings.get("reproducible_from"):
        say(f"\nReproducible from: {reproducible_from}")


def print_removal(rows: Iterable[DomainRemoval]) -> None:
    """Prints perplexities with an expert, without it, and of models trained without its domain."""
    print_rows(perplexity_rows(rows), empty="No rows.")
