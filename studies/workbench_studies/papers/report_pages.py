"""A report's sections in order, those of its paper and those that every report has, as Markdown and as an HTML page."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from importlib import import_module
from typing import Any

from workbench_studies.core.drawing import Chart
from workbench_studies.core.findings import Findings
from workbench_studies.core.forest import FOREST, forest, forest_text, forest_words, look_of
from workbench_studies.core.report import Cell, Rows, Section, shown
from workbench_studies.papers.catalog import paper_of

CLAIMS = "Claims"  # the title of their section


def outline(findings: Findings) -> list[Section]:
    """The summary, the plot of all claims, the paper's own sections, the text, and how to rerun and cite it."""
    summary, *rest = paper_of(findings).report.sections(findings)
    linked = [_with_links(section, rest) if section.title == CLAIMS else section for section in rest]
    words, plot = list(summary.words), []
    if findings.get("date"):  # which the first reports do not have
        versions = ", ".join(f"{name} {number}" for name, number in findings["versions"].items())
        words.append(f"Written on {findings['date']}. Text: {findings['corpus']}. Versions: {versions}.")
    if forest(findings) is not None:
        text = forest_text(findings["claims"])
        plot = [Section("All claims in one picture", (forest_words(findings),), chart=FOREST, text=text)]
    return [Section(summary.title, tuple(words)), *plot, *linked, *_text(findings), *_again(findings)]


def anchor(title: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


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
        | {
            f"line {number}": Cell(line, is_quoted=True)
            for number, line in enumerate([*sample["lines"], "", "", ""][: 3 * has_lines], 1)
        }
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


# as Markdown --------------------------------------------------------------------------------------


def markdown(findings: Findings) -> str:
    """The full report as Markdown."""
    parts, sections = [f"# {paper_of(findings).report_title(findings)}"], outline(findings)
    for section in sections:
        if section.title == CLAIMS:
            links = [f"- [{one.title}](#{anchor(one.title)})" for one in sections]
            parts += ["## Contents", "\n".join(links)]
        parts += [f"## {section.title}", *section.words]
        parts += [f"```text\n{section.text}\n```"] if section.text else []
        parts += [_markdown_table(section.rows)] if section.rows else []
    return "\n\n".join(parts) + "\n"


def _markdown_table(rows: Rows) -> str:
    names = list(rows[0])
    lines = ["| " + " | ".join(map(_cell, names)) + " |", "|" + "---|" * len(names)]
    return "\n".join(lines + ["| " + " | ".join(_linked(row.get(name)) for name in names) + " |" for row in rows])


def _linked(value: object) -> str:
    """A cell with its link; quoted text can end neither its quotes nor its cell, nor become a link."""
    text = _cell(shown(value))
    if not isinstance(value, Cell) or not value.text:
        return text
    if value.is_quoted:
        quoted = value.text
        for old, new in (("`", "'"), ("](", "] ("), ("|", "¦"), ("\n", " ")):
            quoted = quoted.replace(old, new)
        return f"`{quoted}`"
    return f"[{text}](#{anchor(value.link)})" if value.link else text


def _cell(text: str) -> str:
    """Text that cannot end its cell or begin a tag."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


# as an HTML page that opens without a network: Plotly's script is embedded ------------------------


_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: #1a1a1a; }
table { border-collapse: collapse; font-size: 0.85rem; } .wide { overflow-x: auto; }
th, td { border-bottom: 1px solid #ddd; padding: 0.25rem 0.6rem; text-align: left; vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
tr[style] td:nth-last-child(2) { color: var(--mark); font-weight: bold; }
summary { cursor: pointer; } figure { margin: 1rem 0; } figcaption { color: #555; }
nav ul { columns: 20rem; } td code { white-space: pre-wrap; overflow-wrap: anywhere; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #f4f4f4; padding: 0.5rem; }
h1, h2, h3, p { overflow-wrap: anywhere; }
td:has(code) { min-width: 12rem; }
@media (max-width: 40rem) {
  body { margin: 0.5rem auto; padding: 0 0.75rem; } h1 { font-size: 1.4rem; }
  .cards thead { display: none; } .cards tr { display: block; border-bottom: 2px solid #999; padding: 0.4rem 0; }
  .cards td { display: block; border: 0; padding: 0.1rem 0; }
  .cards td::before { content: attr(data-name) ": "; color: #555; }
}
"""


def charts(findings: Findings) -> dict[str, Chart]:
    """Every chart with data, by name."""
    words = paper_of(findings).report.declared["charts"]
    draws = import_module(f"workbench_studies.{findings['paper']}.charts").CHARTS
    drawn = {name: draw(findings) for name, draw in draws.items()}
    return {name: replace(chart, words=words[name]) for name, chart in drawn.items() if chart is not None}


def page(findings: Findings) -> str:
    """The full report as HTML."""
    from plotly.offline import get_plotlyjs

    drawn, paper, plot = charts(findings), paper_of(findings), forest(findings)
    drawn |= {FOREST: plot} if plot else {}
    sections = outline(findings)
    parts = [_section(section, drawn.get(section.chart)) for section in sections]
    links = "".join(f'<li><a href="#{anchor(one.title)}">{html.escape(one.title)}</a></li>' for one in sections)
    contents = f"<nav><h2>Contents</h2><ul>{links}</ul></nav>"
    parts.insert([section.title for section in sections].index(CLAIMS), contents)
    name = html.escape(paper.report_title(findings))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{name}</title><style>{_STYLE}</style><script>{get_plotlyjs()}</script></head>"
        f"<body><h1>{name}</h1>{''.join(parts)}</body></html>\n"
    )


def _section(section: Section, chart: Chart | None) -> str:
    words = "".join(f"<p>{_words(one)}</p>" for one in section.words)
    picture = _figure(chart, section.chart) if chart else ""
    text = f"<pre>{html.escape(section.text)}</pre>" if section.text and not chart else ""
    title = f"<h2>{html.escape(section.title)}</h2>"
    return (
        f'<section id="{anchor(section.title)}">{title}{words}{picture}{text}{"".join(_table(section.rows))}</section>'
    )


def _figure(chart: Chart, name: str) -> str:
    from plotly.io import to_html

    drawn = to_html(
        chart.figure, include_plotlyjs=False, full_html=False, div_id=f"chart-{name}", config={"displaylogo": False}
    )
    numbers = "".join(_table(chart.rows))
    return (
        f'<figure role="group" aria-label="{html.escape(chart.words)}"><h3>{html.escape(chart.title)}</h3>{drawn}'
        f"<figcaption>{html.escape(chart.words)}</figcaption>"
        f"<details><summary>The numbers as a table</summary>{numbers}</details></figure>"
    )


def _words(text: str) -> str:
    """A paragraph of the report as HTML; only bold and italics are interpreted."""
    safe = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", html.escape(text, quote=False))
    return re.sub(r"\*(.+?)\*", r"<em>\1</em>", safe)


def _table(rows: Rows) -> Iterator[str]:
    """A table; on a narrow page wordy rows become lists of their cells."""
    if not rows:
        return
    names = list(rows[0])
    heads = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    is_wordy = "mark" in names or any(isinstance(cell, Cell) and cell.is_quoted for cell in rows[0].values())
    kind = ' class="cards"' if is_wordy else ""
    yield f'<div class="wide"><table{kind}><thead><tr>{heads}</tr></thead>'
    for row in rows:
        colour = f' style="--mark: {look_of(row).colour}"' if row.get("mark") else ""
        yield f"<tr{colour}>{''.join(_cells(row, names))}</tr>"
    yield "</table></div>"


def _cells(row: Mapping[str, Any], names: Sequence[str]) -> Iterator[str]:
    for name in names:
        value = row.get(name)
        kind = ' class="number"' if isinstance(value, int | float) else ""
        place = f' id="{value.anchor}"' if isinstance(value, Cell) and value.anchor else ""
        yield f'<td{kind}{place} data-name="{html.escape(name)}">{_inside(value)}</td>'


def _inside(value: object) -> str:
    text = html.escape(shown(value))
    if not isinstance(value, Cell):
        return text
    if value.is_quoted:
        return f"<code>{text}</code>"
    return f'<a href="#{anchor(value.link)}">{text}</a>' if value.link else text
