"""The report as Markdown, every chart as its table."""

from __future__ import annotations

from collections.abc import Sequence

from workbench_studies.core.findings import Findings
from workbench_studies.core.report import Cell, Rows, Section, shown
from workbench_studies.papers.catalog import paper_of
from workbench_studies.papers.outline import CLAIMS, anchor, outline


def markdown(findings: Findings) -> str:
    """The full report as Markdown."""
    parts, sections = [f"# {paper_of(findings).report_title(findings)}"], outline(findings)
    for section in sections:
        if section.title == CLAIMS:
            parts += ["## Contents", _contents(sections)]
        parts += [f"## {section.title}", *section.words]
        parts += [f"```text\n{section.text}\n```"] if section.text else []
        parts += [_table(section.rows)] if section.rows else []
    return "\n\n".join(parts) + "\n"


def _contents(sections: Sequence[Section]) -> str:
    return "\n".join(f"- [{section.title}](#{anchor(section.title)})" for section in sections)


def _table(rows: Rows) -> str:
    names = list(rows[0])
    lines = ["| " + " | ".join(map(_cell, names)) + " |", "|" + "---|" * len(names)]
    return "\n".join(lines + ["| " + " | ".join(_linked(row.get(name)) for name in names) + " |" for row in rows])


def _linked(value: object) -> str:
    """A cell with its link; quoted text can end neither its quotes nor become a link."""
    text = _cell(shown(value))
    if not isinstance(value, Cell) or not value.text:
        return text
    if value.is_quoted:
        return f"`{_quoted(value.text)}`"
    return f"[{text}](#{anchor(value.link)})" if value.link else text


def _cell(text: str) -> str:
    """Text that cannot end its cell or begin a tag."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def _quoted(text: str) -> str:
    """Text that can end neither its quotes nor its cell, nor look like a link."""
    for old, new in (("`", "'"), ("](", "] ("), ("|", "¦"), ("\n", " ")):
        text = text.replace(old, new)
    return text
