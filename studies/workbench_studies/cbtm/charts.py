"""The charts of C-BTM's report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from workbench_studies.cbtm.report import REPORT, describe_best
from workbench_studies.cbtm.tables import column
from workbench_studies.core.drawing import (
    Chart,
    Drawn,
    Rows,
    add_lines,
    colour,
    double,
    figure,
    group_rows,
    heatmap,
    ratio_heatmap,
)
from workbench_studies.core.verdicts import Findings

_DENSE = "1 clusters"
_Title = Callable[[Findings, Mapping[str, Rows]], str]


def _lines(name: str, title: _Title, findings: Findings, rows: Rows) -> Drawn:
    """A chart as `report.toml` declares it: perplexity with intervals by a column, one line for each name."""
    declared = REPORT.declared["lines"][name]
    x, lines = declared["x"], group_rows(rows, declared["name"])
    lines = {"Dense" if line == _DENSE else line: of_line for line, of_line in lines.items()}
    drawn = add_lines(figure(declared.get("x_title", x), "perplexity per token", better="lower"), lines, x, "ours")
    return double(drawn) if declared.get("is_doubled") else drawn, title(findings, lines), rows


def _line_rows(name: str, findings: Findings) -> Rows:
    x = REPORT.declared["lines"][name]["x"]
    return [row for row in findings["tables"].get(name, ()) if row[x] and row["ours"] is not None]


def _active_title(_: Findings, lines: Mapping[str, Rows]) -> str:
    dense = next((row["ours"] for row in lines.get("Dense", ())), None)
    single = [row for line in lines.values() for row in line if row["models asked"] == 1 and row["clusters"] != 1]
    if dense is None or not single:
        return "Perplexity by the number of models used at each token"
    below = sum(row["ours"] < dense for row in single)
    return f"The nearest model alone is below Dense in {below} of {len(single)} numbers of clusters"


def _last_values(start: str, _: Findings, lines: Mapping[str, Rows]) -> str:
    return f"{start}: " + ", ".join(f"{name} {line[-1]['ours']:.2f}" for name, line in lines.items())


def _shapes_title(_: Findings, lines: Mapping[str, Rows]) -> str:
    """The gain of clusters over one model, for each shape."""
    gains = []
    for shape, line in group_rows([row for each in lines.values() for row in each], "{experts}").items():
        one, *others = {(row["models"], row["models used"]): row["ours"] for row in line}.values()
        gains += [f"{one - others[0]:+.2f} where experts are {shape}"] if others else []
    return f"Clusters gain {' and '.join(gains)}" if gains else "Perplexity by operations"


def _updates(_: Findings, rows: Rows) -> Drawn:
    lines = {"the slowest model": rows}
    if (last := rows[-1])["models"] == "mixture of experts":
        lines = {"the slowest model": rows[:-1], last["models"]: [last]}
    drawn = add_lines(figure("clusters", "seconds of an update", better="lower"), lines, "clusters", "ours")
    return double(drawn), ", ".join(f"{row['models']} {row['ours']:.3f} s" for row in rows), rows


def _temperature_rows(findings: Findings) -> Rows:
    """Nothing before all temperatures of all models were measured."""
    rows: Rows = findings["tables"]["9"]
    names = _columns(rows)
    return rows if names and all(row[names[-1]] is not None for row in rows) else []


def _columns(rows: Rows) -> list[str]:
    """Ours that stand next to one of the paper."""
    return [name for name in rows[0] if column(name) in rows[0]] if rows else []


def _temperature(_: Findings, rows: Rows) -> Drawn:
    names = _columns(rows)
    drawn = figure("temperature T", "perplexity per token", better="lower").update_xaxes(type="log")
    for place, name in enumerate(names):
        add_lines(drawn, {name: rows}, "T", name, {"line": {"color": colour(place)}})
    best = min(rows, key=lambda row: row[names[-1]])
    return drawn, f"With all models, T = {best['T']:g} has the least perplexity", rows


def _ratios(_: Findings, table: Sequence[Sequence[float]]) -> Drawn:
    return ratio_heatmap(table, [*map(str, range(len(table)))], ("cluster", "expert"), "the cluster's own expert")


def _labels(_: Findings, overlap: Mapping[str, Any]) -> Drawn:
    numbers = [str(number) for number in range(len(overlap["shares"][0]))]
    mostly = sum(max(row) > 0.5 for row in overlap["shares"])
    rows = [
        {"label": label, "cluster": number, "share": share}
        for label, row in zip(overlap["labels"], overlap["shares"], strict=True)
        for number, share in zip(numbers, row, strict=True)
    ]
    drawn = heatmap(overlap["shares"], numbers, overlap["labels"], "cluster", "label", "share")
    return drawn, f"{mostly} of {len(overlap['labels'])} labels lie mostly in one cluster: read a row", rows


def _sizes(_: Findings, sizes: Mapping[str, list[list[int]]]) -> Drawn:
    rows = [
        {"clusters": name, "seed": seed, "cluster": number, "documents": size}
        for name, seeds in sizes.items()
        for seed, one in enumerate(seeds)
        for number, size in enumerate(one)
    ]
    drawn = figure("clusters", "held-out documents in a cluster").update_layout(showlegend=False)
    for place, (name, own) in enumerate(group_rows(rows, "{clusters}").items()):
        every = [row["documents"] for row in own]
        drawn.add_box(y=every, name=name, boxpoints="all", marker={"color": colour(place)})
    widths = {name: max(max(one) - min(one) for one in seeds) for name, seeds in sizes.items()}
    title = f"Sizes differ by up to {widths['balanced']:,} documents after balancing, {widths['unbalanced']:,} without"
    return drawn, title, rows


_TITLES: Mapping[str, _Title] = {
    "clusters": lambda findings, _: describe_best(findings),
    "active": _active_title,
    "upcycled": partial(_last_values, "With the most tokens"),
    "numbers": partial(_last_values, "With the most clusters"),
    "shapes": _shapes_title,
}
CHARTS: Mapping[str, Chart] = {
    **{name: (partial(_line_rows, name), partial(_lines, name, title)) for name, title in _TITLES.items()},
    "updates": (lambda findings: findings["tables"].get("updates"), _updates),
    "temperature": (_temperature_rows, _temperature),
    "ratios": (lambda findings: findings["pictures"]["ratios"], _ratios),
    "labels": (lambda findings: findings["pictures"]["labels"], _labels),
    "sizes": (lambda findings: all((sizes := findings["pictures"]["sizes"]).values()) and sizes, _sizes),
}
