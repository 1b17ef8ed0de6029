"""The certificate of a removal: the mixture without an expert, what it costs, and the extraction test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ui.present.text.certificates import extraction_rows, extraction_words, perplexity_rows, prior_words
from ui.reports.report_type import Part, ReportType, Reproducible
from workbench.questions.removal import DomainRemoval


class RemovalFindings(Reproducible):
    """What the certificate holds."""

    expert: str
    ok: bool
    sentence: str
    num_blocks: int
    evidence: str
    perplexity: list[dict[str, Any]]  # rows of DomainRemoval, the expert's own domain first
    extraction: dict[str, Any]
    not_removed: str


def _describe(findings: RemovalFindings) -> Iterator[Part]:
    rows = [DomainRemoval.model_validate(row) for row in findings["perplexity"]]
    yield ""
    yield prior_words(findings)
    yield perplexity_rows(rows) or "No rows."
    yield from (f"{row.domain}: {row.why}" for row in rows if row.why)
    yield ""
    yield extraction_words(findings["extraction"])
    yield extraction_rows(findings["extraction"]) or "No rows."
    yield ""
    yield findings["not_removed"]
    if reproducible_from := findings.get("reproducible_from"):
        yield ""
        yield f"Reproducible from: {reproducible_from}"


REPORT = ReportType(
    name="removal",
    title="Removals",
    findings=RemovalFindings,
    describe=_describe,
    draw="ui.studio.experts.certificates:show_removal_report",
)
