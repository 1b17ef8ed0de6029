"""A report's sections in order, those of its paper and those that every report has, as Markdown and as an HTML page."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from jinja2 import Environment

from workbench.formatting.chart_template import CaptionedChart
from workbench_studies.core.drawing import FOREST, Chart, explain_forest, forest, forest_text, look_of
from workbench_studies.core.report import Section, format_cell
from workbench_studies.core.verdicts import Findings
from workbench_studies.papers.catalog import paper_of

CLAIMS = "Claims"  # the title of their section, whose rows lead to the section of their table or figure
QUOTED = "line "  # begins the names of columns with quoted text


def outline(findings: Findings) -> list[Section]:
    """The summary, the plot of all claims, the paper's own sections, the text, and how to rerun and cite it."""
    summary, *rest = paper_of(findings).report.sections(findings)
    own = [
        replace(section, rows=[{"no.": str(number), **row} for number, row in enumerate(section.rows, 1)])
        if section.title == CLAIMS
        else section
        for section in rest
    ]
    words, plot = list(summary.words), []
    if findings.get("date"):  # which the first reports do not have
        versions = ", ".join(f"{name} {number}" for name, number in findings["versions"].items())
        words.append(f"Written on {findings['date']}. Text: {findings['corpus']}. Versions: {versions}.")
    if forest(findings) is not None:
        text = forest_text(findings["claims"])
        plot = [Section("All claims in one picture", (explain_forest(findings),), chart=FOREST, text=text)]
    return [Section(summary.title, tuple(words)), *plot, *own, *_text(findings), *_again(findings)]


def anchor(title: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


# from a claim to its chart ------------------------------------------------------------------------


def section_of(where: str, sections: Sequence[Section]) -> str:
    """The title of the section about a table, figure or paragraph of the paper; empty if none is."""
    wanted = _places(where)
    return next((section.title for section in sections if wanted & _places(section.title)), "")


def _places(words: str) -> set[str]:
    """`Figures 7 and 8: blocks` → `figure 7`, `figure 8`."""
    listed = re.findall(r"(table|figure)s?\s+(\d+(?:(?:, | and | to )\d+)*)", words.lower())
    numbered = {f"{noun} {number}" for noun, numbers in listed for number in re.findall(r"\d+", numbers)}
    return numbered | set(re.findall(r"§[\w.]*\w", words))


# the text, and how to do it again -----------------------------------------------------------------


def _text(findings: Findings) -> Iterator[Section]:
    """The size of each domain and some of its lines; nothing for findings from before the text was kept."""
    if not (samples := findings.get("samples")):
        return
    has_lines = any(sample["lines"] for sample in samples)
    lines = "the lines are the starts of three training documents" if has_lines else "its lines were left out"
    about = (
        f"Called “{findings['corpus']}”: {len(findings['domains'])} training domains and "
        f"{len(findings['novel'])} novel ones. The size is that of all splits; {lines}."
    )
    rows = [
        {
            "domain": sample["domain"],
            "role": "novel" if sample["domain"] in findings["novel"] else "training",
            "documents": sample["documents"],
            "MB": sample["bytes"] / 1e6,
        }
        | {f"{QUOTED}{number}": line for number, line in enumerate([*sample["lines"], "", "", ""][: 3 * has_lines], 1)}
        for sample in samples
    ]
    yield Section("Text", (about,), rows)


def _again(findings: Findings) -> Iterator[Section]:
    """The command that makes the report again, what the size has been given since, and how to cite the report."""
    if not (command := findings.get("command")):
        return
    words = [
        "The command below trains, scores and judges everything again, where the workbench has the versions named "
        "above. Compare the two reports with: workbench replicate compare"
    ]
    paper, version = paper_of(findings), findings["versions"].get("expert-workbench", "")
    size = paper.sizes.get(findings["size"])
    today = json.loads(json.dumps(asdict(size))) if size else {}
    if moved := [f"{name} {then} (today {now})" for name, then, now in _differences("", findings["budget"], today)]:
        words.append(f"The size has changed since this report: {', '.join(moved)}. The command runs it as it is today.")
    cited = (
        f"Cite: Expert Workbench {version}, replication of {paper.title} ({paper.source}) on {findings['corpus']}, "
        f"report “{findings['name']}”, size {findings['size']}, {findings['date']}. Cite the paper, too; both entries "
        "are in the file CITATION.cff."
    ).replace("  ", " ")
    yield Section("Run it again, and cite it", (*words, cited), text=command)


def _differences(name: str, then: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    """The numbers that both have and that differ: `adapting learning rate`, 0.003, 0.0006."""
    if isinstance(then, dict) and isinstance(now, dict):
        for key in (key for key in then if key in now):
            yield from _differences(f"{name} {key.replace('_', ' ')}".strip(), then[key], now[key])
    elif then != now:
        yield name, then, now


# as Markdown, and as an HTML page that opens without a network: Plotly's script is embedded ---------------------------


def markdown(findings: Findings) -> str:
    """The full report as Markdown."""
    return _render("report.md.jinja", findings, cell=_markdown_cell)


def _render(template: str, findings: Findings, **more: Any) -> str:
    """The report by a template next to this module; in HTML every text is escaped."""
    source = Path(__file__).with_name(template).read_text(encoding="utf-8")
    environment = Environment(autoescape=template.endswith("html"), keep_trailing_newline=True)
    return environment.from_string(source).render(
        title=paper_of(findings).report_title(findings),
        sections=outline(findings),
        claims=CLAIMS,
        quoted=QUOTED,
        anchor=anchor,
        section_of=section_of,
        **more,
    )


def _markdown_cell(value: object, link: str = "", *, is_quoted: bool = False) -> str:
    """A cell with its link, that cannot end its row or begin a tag; quoted text also cannot become a link."""
    text = format_cell(value)
    escapes = [("`", "'"), ("](", "] ("), ("|", "¦")] if is_quoted else [("\\", "\\\\"), ("|", "\\|"), ("<", "&lt;")]
    for old, new in (*escapes, ("\n", " ")):
        text = text.replace(old, new)
    return f"`{text}`" if is_quoted else f"[{text}](#{anchor(link)})" if link else text


def charts(findings: Findings) -> dict[str, CaptionedChart]:
    """Every chart with data, by name."""
    words = paper_of(findings).report.declared["charts"]
    known: Mapping[str, Chart] = import_module(f"workbench_studies.{findings['paper']}.charts").CHARTS
    drawn = {name: draw(findings, data) for name, (select, draw) in known.items() if (data := select(findings))}
    return {name: CaptionedChart(chart, title, words[name], rows) for name, (chart, title, rows) in drawn.items()}


def page(findings: Findings) -> str:
    """The full report as HTML."""
    from plotly.io import to_html
    from plotly.offline import get_plotlyjs

    drawn, plot = charts(findings), forest(findings)
    drawn |= {FOREST: plot} if plot else {}
    options: dict[str, Any] = {"include_plotlyjs": False, "full_html": False, "config": {"displaylogo": False}}
    return _render(
        "report.html",
        findings,
        script=get_plotlyjs(),
        charts=drawn,
        figure=lambda name: to_html(drawn[name].figure, div_id=f"chart-{name}", **options),
        paragraph=_paragraph,
        format_cell=format_cell,
        look_of=look_of,
    )


def _paragraph(text: str) -> str:
    """A paragraph of the report as HTML; only bold and italics are interpreted."""
    safe = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", html.escape(text, quote=False))
    return re.sub(r"\*(.+?)\*", r"<em>\1</em>", safe)
