"""A report's sections in order: those of its paper, and those that every report has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from workbench_studies.core.findings import Findings
from workbench_studies.core.forest import FOREST, forest, forest_text, forest_words
from workbench_studies.core.report import Cell, Section
from workbench_studies.papers.catalog import paper_of

CLAIMS = "Claims"  # the title of their section


def outline(findings: Findings) -> list[Section]:
    """The summary, the plot of all claims, the paper's own sections, the text, and how to rerun and cite it."""
    summary, *rest = paper_of(findings).report.sections(findings)
    linked = [_with_links(section, rest) if section.title == CLAIMS else section for section in rest]
    dated = Section(summary.title, (*summary.words, *_dated(findings)))
    return [dated, *_forest(findings), *linked, *_text(findings), *_again(findings)]


def _dated(findings: Findings) -> Iterator[str]:
    """When it was written, on which text and with which versions; nothing for findings from before that was kept."""
    if findings.get("date"):
        versions = ", ".join(f"{name} {number}" for name, number in findings["versions"].items())
        yield f"Written on {findings['date']}. Text: {findings['corpus']}. Versions: {versions}."


def anchor(title: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _forest(findings: Findings) -> Iterator[Section]:
    if forest(findings) is not None:
        words = (forest_words(findings),)
        yield Section("All claims in one picture", words, chart=FOREST, text=forest_text(findings["claims"]))


# from a claim to its chart ------------------------------------------------------------------------


def _with_links(section: Section, sections: Sequence[Section]) -> Section:
    """The table of claims with the number of each, and with a link to the section of its table or figure."""
    rows = [
        {"no.": Cell(str(number), anchor=f"claim-{number}")}
        | dict(row)
        | {"where": Cell(str(row["where"]), link=section_of(str(row["where"]), sections))}
        for number, row in enumerate(section.rows, 1)
    ]
    return Section(section.title, section.words, rows)


def section_of(where: str, sections: Sequence[Section]) -> str:
    """The title of the section about a table, figure or paragraph of the paper; empty if none is."""
    wanted = _places(where)
    return next((one.title for one in sections if wanted & _places(one.title)), "")


def _places(words: str) -> set[str]:
    """`Figures 7 and 8: blocks` → `figure 7`, `figure 8`."""
    listed = re.findall(r"(table|figure)s?\s+(\d+(?:(?:, | and | to )\d+)*)", words.lower())
    numbered = {f"{noun} {number}" for noun, numbers in listed for number in re.findall(r"\d+", numbers)}
    return numbered | set(re.findall(r"§[\w.]*\w", words))


# the text, and how to do it again -----------------------------------------------------------------


def _text(findings: Findings) -> Iterator[Section]:
    """Nothing for findings from before the text was kept."""
    if findings.get("samples"):
        yield Section("Text", (_about_text(findings),), list(_sample_rows(findings)))


def _about_text(findings: Findings) -> str:
    training, novel = len(findings["domains"]), len(findings["novel"])
    lines = (
        "the lines are the starts of three training documents" if _has_lines(findings) else "its lines were left out"
    )
    return (
        f"Called “{findings['corpus']}”: {training} training domains and {novel} novel ones. The size is that of all "
        f"splits; {lines}."
    )


def _has_lines(findings: Findings) -> bool:
    return any(sample["lines"] for sample in findings["samples"])


def _sample_rows(findings: Findings) -> Iterator[Mapping[str, Any]]:
    names = [f"line {number}" for number in range(1, 4)] if _has_lines(findings) else []
    for sample in findings["samples"]:
        lines = (*sample["lines"], "", "", "")
        yield {
            "domain": sample["domain"],
            "role": "novel" if sample["domain"] in findings["novel"] else "training",
            "documents": sample["documents"],
            "MB": sample["bytes"] / 1e6,
            **{name: Cell(line, is_quoted=True) for name, line in zip(names, lines, strict=False)},
        }


def _again(findings: Findings) -> Iterator[Section]:
    if command := findings.get("command"):
        yield Section("Run it again, and cite it", (_RERUN, *_changed_since(findings), _cited(findings)), text=command)


def _changed_since(findings: Findings) -> Iterator[str]:
    """What the size has been given since: the command makes a replication of today's size."""
    size = paper_of(findings).sizes.get(findings["size"])
    today = json.loads(json.dumps(asdict(size))) if size else {}
    moved = [f"{name} {then} (today {now})" for name, then, now in _differences("", findings["budget"], today)]
    if moved:
        yield f"The size has changed since this report: {', '.join(moved)}. The command runs it as it is today."


def _differences(name: str, then: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    """The numbers that both have and that differ: `adapting learning rate`, 0.003, 0.0006."""
    if isinstance(then, dict) and isinstance(now, dict):
        for key in (one for one in then if one in now):
            yield from _differences(f"{name} {key.replace('_', ' ')}".strip(), then[key], now[key])
    elif then != now:
        yield name, then, now


_RERUN = (
    "The command below trains, scores and judges everything again, where the workbench has the versions named above. "
    "Compare the two reports with: workbench replicate compare"
)


def _cited(findings: Findings) -> str:
    paper = paper_of(findings)
    version = findings["versions"].get("expert-workbench", "")
    return (
        f"Cite: Expert Workbench {version}, replication of {paper.title} ({paper.source}) on {findings['corpus']}, "
        f"report “{findings['name']}”, size {findings['size']}, {findings['date']}. Cite the paper, too; both entries "
        "are in the file CITATION.cff."
    ).replace("  ", " ")
