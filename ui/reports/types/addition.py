"""The certificate of an addition: no other file changed, and what each domain gained."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ui.present.text.certificates import change_rows, folder_rows, single_words
from ui.reports.report_type import Part, ReportType, Reproducible


class AdditionFindings(Reproducible):
    """What the certificate holds."""

    expert: str
    mixture: str
    ok: bool
    sentence: str
    domains: list[dict[str, Any]]  # perplexities before and after
    folders: list[dict[str, Any]]  # that were hashed


def _describe(findings: AdditionFindings) -> Iterator[Part]:
    yield ""
    yield change_rows(findings) or "The certificate has no perplexities."
    if compared := single_words(findings):
        yield compared
    yield ""
    yield folder_rows(findings) or "There were no files before."
    if reproducible_from := findings.get("reproducible_from"):
        yield ""
        yield f"Reproducible from: {reproducible_from}"


REPORT = ReportType(
    name="addition",
    title="Additions",
    findings=AdditionFindings,
    describe=_describe,
    draw="ui.studio.experts.certificates:show_addition",
)
