"""The report as one HTML file that opens without a network: Plotly's script is embedded."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from workbench_studies.cbtm.charts import CHARTS as CBTM
from workbench_studies.core.drawing import Chart, Draw
from workbench_studies.core.forest import FOREST, forest, look_of
from workbench_studies.core.report import Cell, Rows, Section, shown
from workbench_studies.demix.charts import CHARTS as DEMIX
from workbench_studies.mode.charts import CHARTS as MODE
from workbench_studies.papers.catalog import paper_of
from workbench_studies.papers.outline import CLAIMS, anchor, outline

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


_CHARTS: Mapping[str, Mapping[str, Draw]] = {"demix": DEMIX, "cbtm": CBTM, "mode": MODE}


def charts(findings: Mapping[str, Any]) -> dict[str, Chart]:
    """Every chart with data, by name."""
    words = paper_of(findings).report.declared["charts"]
    drawn = {name: draw(findings) for name, draw in _CHARTS[findings["paper"]].items()}
    return {name: replace(chart, words=words[name]) for name, chart in drawn.items() if chart is not None}


def page(findings: Mapping[str, Any]) -> str:
    """The full report as HTML."""
    from plotly.offline import get_plotlyjs

    drawn, paper, plot = charts(findings), paper_of(findings), forest(findings)
    drawn |= {FOREST: plot} if plot else {}
    sections = outline(findings)
    parts = [_section(section, drawn.get(section.chart)) for section in sections]
    parts.insert([section.title for section in sections].index(CLAIMS), _contents(sections))
    name = html.escape(paper.report_title(findings))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{name}</title><style>{_STYLE}</style><script>{get_plotlyjs()}</script></head>"
        f"<body><h1>{name}</h1>{''.join(parts)}</body></html>\n"
    )


def _contents(sections: Sequence[Section]) -> str:
    items = "".join(f'<li><a href="#{anchor(one.title)}">{html.escape(one.title)}</a></li>' for one in sections)
    return f"<nav><h2>Contents</h2><ul>{items}</ul></nav>"


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
