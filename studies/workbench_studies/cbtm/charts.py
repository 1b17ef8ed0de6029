"""The charts of C-BTM's report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from workbench.formatting.palette import COLOURS
from workbench_studies.cbtm import paper
from workbench_studies.cbtm.report import best_words
from workbench_studies.core.drawing import Chart, Draw, Rows, figure, grouped, heatmap, ratio_heatmap
from workbench_studies.core.findings import Findings

_DENSE = "#555555"


def _clusters(findings: Findings) -> Chart | None:
    rows = [row for row in findings["tables"]["clusters"] if row["clusters"] and row["ours"] is not None]
    if not rows:
        return None
    drawn = figure("clusters", "perplexity per token", better="lower")
    for place, ((budget,), line) in enumerate(grouped(rows, ("budget",)).items()):
        _add_interval_line(drawn, line, "clusters", str(budget), COLOURS[place % len(COLOURS)])
    drawn.update_xaxes(type="log", dtick=0.30103)  # of 10: each tick doubles
    words = "Line chart: average perplexity by the number of clusters at equal tokens, one line for each budget, "
    words += "with 95 % intervals; lower is better."
    return Chart(drawn, best_words(findings), words, rows)


def _active(findings: Findings) -> Chart | None:
    rows = [row for row in findings["tables"]["active"] if row["ours"] is not None]
    if not rows:
        return None
    drawn = figure("models used at each token", "perplexity per token", better="lower")
    for place, ((clusters,), line) in enumerate(grouped(rows, ("clusters",)).items()):
        name = "Dense" if clusters == 1 else f"{clusters} clusters"
        _add_interval_line(drawn, line, "models asked", name, COLOURS[place % len(COLOURS)])
    drawn.update_xaxes(type="log", dtick=0.30103)
    words = "Line chart: average perplexity by the number of models used at each token, one line for each number of "
    words += "clusters, with 95 % intervals; lower is better."
    return Chart(drawn, _active_title(rows), words, rows)


def _active_title(rows: Rows) -> str:
    dense = next((row["ours"] for row in rows if row["clusters"] == 1), None)
    single = [row for row in rows if row["models asked"] == 1 and row["clusters"] != 1]
    if dense is None or not single:
        return "Perplexity by the number of models used at each token"
    below = sum(row["ours"] < dense for row in single)
    return f"The nearest model alone is below Dense in {below} of {len(single)} numbers of clusters"


def _upcycled(findings: Findings) -> Chart | None:
    rows = [row for row in findings["tables"].get("upcycled", ()) if row["ours"] is not None]
    if not rows:
        return None
    drawn = figure("tokens after branching", "perplexity per token", better="lower")
    lines = {str(model): line for (model,), line in grouped(rows, ("model",)).items()}
    for place, (model, line) in enumerate(lines.items()):
        _add_interval_line(drawn, line, "tokens after branching", model, COLOURS[place % len(COLOURS)])
    text = ", ".join(f"{model} {line[-1]['ours']:.2f}" for model, line in lines.items())
    words = "Line chart: average perplexity by tokens after branching, one line each for one model, clusters and a "
    words += "mixture of experts, with 95 % intervals; lower is better."
    return Chart(drawn, f"With the most tokens: {text}", words, rows)


def _numbers(findings: Findings) -> Chart | None:
    rows = [row for row in findings["tables"].get("numbers", ()) if row["ours"] is not None]
    if not rows:
        return None
    drawn = figure("clusters", "perplexity per token", better="lower")
    lines = {str(made): line for (made,), line in grouped(rows, ("made",)).items()}
    for place, (made, line) in enumerate(lines.items()):
        _add_interval_line(drawn, line, "clusters", made, COLOURS[place % len(COLOURS)])
    drawn.update_xaxes(type="log", dtick=0.30103)
    last = ", ".join(f"{made} {line[-1]['ours']:.2f}" for made, line in lines.items())
    words = "Line chart: average perplexity by the number of clusters, one line each for balanced, random and "
    words += "unbalanced ones; 1 is one model on all text. With 95 % intervals; lower is better."
    return Chart(drawn, f"With the most clusters: {last}", words, rows)


def _updates(findings: Findings) -> Chart | None:
    rows: Rows = findings["tables"].get("updates", [])
    if not rows:
        return None
    drawn = figure("clusters", "seconds of an update", better="lower")
    *arms, last = rows
    is_upcycled = last["models"] == "mixture of experts"
    _add_interval_line(drawn, arms if is_upcycled else rows, "clusters", "the slowest model", COLOURS[0])
    if is_upcycled:
        _add_interval_line(drawn, [last], "clusters", str(last["models"]), COLOURS[1])
    drawn.update_xaxes(type="log", dtick=0.30103)
    times = ", ".join(f"{row['models']} {row['ours']:.3f} s" for row in rows)
    words = "Line chart: seconds of an update of an arm's slowest model by the number of clusters, with a mixture of "
    words += "experts beside one model, and 95 % intervals; lower is faster."
    return Chart(drawn, times, words, rows)


def _shapes(findings: Findings) -> Chart | None:
    rows = [row for row in findings["tables"].get("shapes", ()) if row["ours"] is not None]
    if not rows:
        return None
    drawn = figure("GFLOPs with the seed model", "perplexity per token", better="lower")
    places: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        places.setdefault(f"{row['experts']}: {row['models used']} of {row['models']}", []).append(row)
    for place, (name, line) in enumerate(places.items()):
        _add_interval_line(drawn, line, "GFLOPs with the seed model", name, COLOURS[place % len(COLOURS)])
    words = "Points: average perplexity by operations of training, for one model, for clusters and for few of them, of "
    words += "smaller and larger experts, with 95 % intervals; lower and further left is better."
    return Chart(drawn, _shapes_title(rows), words, rows)


def _shapes_title(rows: Rows) -> str:
    """The gain of clusters over one model, for each shape."""
    gains = []
    for (shape,), line in grouped(rows, ("experts",)).items():
        values = {(row["models"], row["models used"]): row["ours"] for row in line}
        one, *others = values.values()
        gains.append(f"{one - others[0]:+.2f} where experts are {shape}" if others else "")
    return f"Clusters gain {' and '.join(filter(None, gains))}" if any(gains) else "Perplexity by operations"


def _temperature(findings: Findings) -> Chart | None:
    rows: Rows = findings["tables"]["9"]
    names = [name for name in rows[0] if paper.column(name) in rows[0]] if rows else []
    if not names or any(row[names[-1]] is None for row in rows):
        return None
    drawn = figure("temperature T", "perplexity per token", better="lower")
    for place, name in enumerate(names):
        line = {"color": COLOURS[place % len(COLOURS)]}
        drawn.add_scatter(
            x=[row["T"] for row in rows], y=[row[name] for row in rows], name=name, mode="lines+markers", line=line
        )
    drawn.update_xaxes(type="log")
    best = min(rows, key=lambda row: row[names[-1]])
    title = f"With all models, T = {best['T']:g} has the least perplexity"
    words = "Line chart: average perplexity by temperature, one line for each number of models used at each token."
    return Chart(drawn, title, words, rows)


def _ratios(findings: Findings) -> Chart | None:
    table = findings["pictures"]["ratios"]
    if table is None:
        return None
    numbers = [str(number) for number in range(len(table))]
    num_better = sum(cell < 1 for row in table for cell in row)
    title = "Read a column: 1.0 is the cluster's own expert"
    title += "; no other expert is better" if not num_better else f"; in {num_better} cells another expert is better"
    rows = [
        {"expert": one, "cluster": other, "ratio": table[i][j]}
        for i, one in enumerate(numbers)
        for j, other in enumerate(numbers)
    ]
    words = "Heatmap: each expert's perplexity on each cluster over that of the cluster's own expert."
    return Chart(_by_number(ratio_heatmap(table, numbers, numbers, "cluster", "expert")), title, words, rows)


def _labels(findings: Findings) -> Chart | None:
    overlap = findings["pictures"]["labels"]
    if overlap is None:
        return None
    numbers = [str(number) for number in range(len(overlap["shares"][0]))]
    mostly = sum(max(row) > 0.5 for row in overlap["shares"])
    title = f"{mostly} of {len(overlap['labels'])} labels lie mostly in one cluster: read a row"
    rows = [
        {"label": label, "cluster": number, "share": share}
        for label, row in zip(overlap["labels"], overlap["shares"], strict=True)
        for number, share in zip(numbers, row, strict=True)
    ]
    words = "Heatmap: the share of each training domain's documents in each cluster; a row sums to 1."
    drawn = heatmap(overlap["shares"], numbers, overlap["labels"], "cluster", "label", "share")
    drawn.update_xaxes(type="category")
    return Chart(drawn, title, words, rows)


def _sizes(findings: Findings) -> Chart | None:
    sizes: Mapping[str, list[list[int]]] = findings["pictures"]["sizes"]
    if not all(sizes.values()):
        return None
    drawn = figure("clusters", "held-out documents in a cluster")
    for place, (name, seeds) in enumerate(sizes.items()):
        every = [size for one in seeds for size in one]
        drawn.add_box(y=every, name=name, boxpoints="all", marker={"color": COLOURS[place]})
    drawn.update_layout(showlegend=False)
    widths = {name: max(max(one) - min(one) for one in seeds) for name, seeds in sizes.items()}
    title = f"Sizes differ by up to {widths['balanced']:,} documents after balancing, {widths['unbalanced']:,} without"
    words = "Box plot: held-out documents in each cluster, balanced and unbalanced, the clusters of all seeds."
    rows = [
        {"clusters": name, "seed": seed, "cluster": number, "documents": size}
        for name, seeds in sizes.items()
        for seed, one in enumerate(seeds)
        for number, size in enumerate(one)
    ]
    return Chart(drawn, title, words, rows)


CHARTS: Mapping[str, Draw] = {
    "clusters": _clusters,
    "active": _active,
    "upcycled": _upcycled,
    "numbers": _numbers,
    "shapes": _shapes,
    "updates": _updates,
    "temperature": _temperature,
    "ratios": _ratios,
    "labels": _labels,
    "sizes": _sizes,
}


def _add_interval_line(drawn: go.Figure, line: Rows, x: str, name: str, colour: str) -> None:
    drawn.add_scatter(
        x=[row[x] for row in line],
        y=[row["ours"] for row in line],
        name=name,
        mode="lines+markers",
        line={"color": colour},
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [row["high"] - row["ours"] for row in line],
            "arrayminus": [row["ours"] - row["low"] for row in line],
        },
    )


def _by_number(drawn: go.Figure) -> go.Figure:
    """Clusters are called by numbers, which are names and no amounts."""
    drawn.update_xaxes(type="category")
    drawn.update_yaxes(type="category")
    return drawn
