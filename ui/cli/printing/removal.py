"""Prints the effects of removing an expert."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ui.cli.output import day, print_table, say
from ui.present.text.removal import extraction_rows, extraction_words, perplexity_rows, prior_words
from workbench.answers.changes import DomainRemoval
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
    _print(extraction_rows(findings["extraction"]))
    say(f"\n{findings['not_removed']}")


def print_removal(rows: Iterable[DomainRemoval]) -> None:
    """Prints perplexities with an expert, without it, and of models trained without its domain."""
    _print(perplexity_rows(rows))


def _print(rows: Sequence[dict[str, Any]]) -> None:
    columns = list(rows[0]) if rows else []
    print_table([one[:1].upper() + one[1:] for one in columns], [list(row.values()) for row in rows], empty="No rows.")
