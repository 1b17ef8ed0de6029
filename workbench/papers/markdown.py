"""The report as Markdown, every chart as its table."""

from __future__ import annotations

from workbench.papers.catalog import paper_of
from workbench.replications.findings import Findings
from workbench.replications.report import Rows, shown


def markdown(findings: Findings) -> str:
    """The full report as Markdown."""
    paper = paper_of(findings)
    parts = [f"# {paper.report_title(findings)}"]
    for section in paper.sections(findings):
        parts += [f"## {section.title}", *section.words, *([_table(section.rows)] if section.rows else [])]
    return "\n\n".join(parts) + "\n"


def _table(rows: Rows) -> str:
    names = list(rows[0])
    lines = ["| " + " | ".join(map(_cell, names)) + " |", "|" + "---|" * len(names)]
    return "\n".join(lines + ["| " + " | ".join(_cell(shown(row.get(name))) for name in names) + " |" for row in rows])


def _cell(text: str) -> str:
    """Text that cannot end its cell or begin a tag."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
