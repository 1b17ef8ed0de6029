"""The report as one HTML file that opens without a network: Plotly's script is embedded."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from workbench.papers.catalog import paper_of
from workbench.replications.charts import charts
from workbench.replications.drawing import Chart
from workbench.replications.report import Rows, Section, shown

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: #1a1a1a; }
table { border-collapse: collapse; font-size: 0.85rem; } .wide { overflow-x: auto; }
th, td { border-bottom: 1px solid #ddd; padding: 0.25rem 0.6rem; text-align: left; vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
tr.reproduced td:nth-last-child(2) { color: #1b6e3c; font-weight: bold; }
tr.reproduced-only-in-a-weaker-form td:nth-last-child(2) { color: #8a5a00; font-weight: bold; }
tr.not-reproduced td:nth-last-child(2) { color: #a4161a; font-weight: bold; }
summary { cursor: pointer; } figure { margin: 1rem 0; } figcaption { color: #555; }
"""


def page(findings: Mapping[str, Any]) -> str:
    """The full report as HTML."""
    from plotly.offline import get_plotlyjs

    drawn, paper = charts(findings), paper_of(findings)
    body = "".join(_section(section, drawn.get(section.chart)) for section in paper.sections(findings))
    name = html.escape(paper.report_title(findings))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{name}</title><style>{_STYLE}</style>'
        f"<script>{get_plotlyjs()}</script></head><body><h1>{name}</h1>{body}</body></html>\n"
    )


def _section(section: Section, chart: Chart | None) -> str:
    words = "".join(f"<p>{_words(one)}</p>" for one in section.words)
    picture = _figure(chart, section.chart) if chart else ""
    return f"<section><h2>{html.escape(section.title)}</h2>{words}{picture}{''.join(_table(section.rows))}</section>"


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
    if not rows:
        return
    names = list(rows[0])
    heads = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    yield f'<div class="wide"><table><thead><tr>{heads}</tr></thead>'
    for row in rows:
        mark = str(row.get("mark", "")).replace(" ", "-")
        yield f'<tr class="{html.escape(mark)}">{"".join(_cells(row, names))}</tr>'
    yield "</table></div>"


def _cells(row: Mapping[str, Any], names: Sequence[str]) -> Iterator[str]:
    for name in names:
        value = row.get(name)
        kind = ' class="number"' if isinstance(value, int | float) else ""
        yield f"<td{kind}>{html.escape(shown(value))}</td>"
