"""Reports as rows for a table, and in a sentence."""

from __future__ import annotations

from typing import Any

from ui.present.text.formatting import clock
from workbench.formatting.shell_command import shell_command
from workbench.registry.cards import ReportCard


def report_row(card: ReportCard) -> dict[str, Any]:
    """One report: where it is from, and what it says."""
    return {
        "id": card.id[:8],
        "kind": card.kind,
        "report": card.title,
        "made": clock(card.created_at),
        "holds": _holds(card),
        "says": str(card.findings.get("sentence", "")),
    }


def read_words(card: ReportCard) -> str:
    """Where a report without a sentence of its own is read."""
    match card.kind:
        case "overlap":
            return "Read it beside the specialization of a mixture: workbench evaluate affinity MIXTURE"
        case "replication":
            return f"Read its claims: {shell_command('replicate', 'show', str(card.findings.get('name', 'NAME')))}"
    return ""


def _holds(card: ReportCard) -> str:
    ok = card.findings.get("ok")
    return "" if ok is None else "yes" if ok else "NO"
