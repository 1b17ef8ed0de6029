"""The charts of DEMix's report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import plotly.graph_objects as go

from workbench.formatting.number_format import label
from workbench_studies.core.drawing import (
    Chart,
    Drawn,
    Rows,
    add_lines,
    colour,
    error_bars,
    figure,
    group_rows,
    heatmap,
    logarithmic,
    ratio_heatmap,
)
from workbench_studies.core.verdicts import Findings
from workbench_studies.demix.measurements import SETTLED, STABLE_AFTER
from workbench_studies.demix.report import describe_changes, describe_crossing

_APART = 0.12  # of the readings of one mode
_DASHES = ("solid", "dash", "dot", "dashdot")


def _curves(findings: Findings, rows: Rows) -> Drawn:
    names, lines = [*group_rows(rows, "{system}")], group_rows(rows, "{system}, seed {seed}")
    styles = [
        {"color": colour(names.index(line["system"])), "dash": _DASHES[line["seed"] % len(_DASHES)]}
        for line, *_ in lines.values()
    ]
    return _over_tokens("training tokens", lines, styles), describe_crossing(findings), rows


def _over_tokens(x: str, lines: Mapping[str, Rows], styles: Iterable[Mapping[str, Any]]) -> go.Figure:
    """Perplexity over tokens."""
    drawn = figure(x, "perplexity per token", better="lower")
    add_lines(drawn, lines, "tokens", "perplexity", *({"mode": "lines", "line": style} for style in styles))
    logarithmic(drawn, (row["perplexity"] for line in lines.values() for row in line))
    return drawn.update_xaxes(tickformat="~s")


def _forgetting_rows(findings: Findings) -> Rows:
    rows: Rows = findings["forgetting"]
    return rows if any(row["method"] == "dense-DAPT" for row in rows) else []


def _forgetting(_: Findings, rows: Rows) -> Drawn:
    targets, lines = [*group_rows(rows, "{target}")], group_rows(rows, "{method} on {target}: {text}")
    first = {name: [row for row in line if row["seed"] == line[0]["seed"]] for name, line in lines.items()}
    styles = [
        {
            "color": colour(targets.index(row["target"])),
            "dash": "solid" if row["method"] == "dense-DAPT" else "dot",
            "width": 3 if row["text"] == "target" else 1,
        }
        for row, *_ in first.values()
    ]
    title = "Solid: dense-DAPT, dotted: DEMix-DAPT; thick: the target, thin: the training domains. " + _forgotten(rows)
    return _over_tokens("tokens of the target", first, styles), title, rows


def _forgotten(rows: Rows) -> str:
    """For how many targets the training domains end worse than they began, by the mean over seeds."""
    dense = [row for row in rows if (row["method"], row["text"]) == ("dense-DAPT", "training domains")]
    lines = group_rows(dense, "{target}").values()
    worse = sum(_ends(line, max) > _ends(line, min) for line in lines)
    return f"Dense-DAPT's training domains end worse than they began for {worse} of {len(lines)} targets"


def _ends(line: Rows, which: Callable[[Iterable[int]], int]) -> float:
    """The mean perplexity at the first (`min`) or last (`max`) point of each seed."""
    by_seed = group_rows(line, "{seed}").values()
    at = [(rows, which(row["tokens"] for row in rows)) for rows in by_seed]
    return float(sum(row["perplexity"] for rows, tokens in at for row in rows if row["tokens"] == tokens) / len(at))


def _modes(_: Findings, rows: Rows) -> Drawn:
    drawn = figure("way to mix", "average perplexity per token on novel text", better="lower")
    names, readings = [*group_rows(rows, "{system}")], group_rows(rows, "{reading}")
    moved = {
        reading: [row | {"x": names.index(row["system"]) + _APART * place} for row in line]
        for place, (reading, line) in enumerate(readings.items())
    }
    add_lines(drawn, moved, "x", "ours", *map(_dots, range(len(moved))))
    middle = _APART * (len(readings) - 1) / 2
    drawn.update_xaxes(tickvals=[number + middle for number in range(len(names))], ticktext=names)
    best = min(rows, key=lambda row: row["ours"])
    return drawn, f"Lowest on novel text: {best['system']} with {best['reading']}", rows


def _dots(place: int) -> dict[str, Any]:
    return {"mode": "markers", "marker": {"color": colour(place), "size": 10}}


def _changes_by_mode(findings: Findings, rows: Rows) -> Drawn:
    """Each comparison of the calibrated reading a row, its change of perplexity with its interval."""
    drawn = figure("change of perplexity against it, %", "", height=130 + 26 * len(rows))
    for place, (against, own) in enumerate(group_rows(rows, "{against}").items()):
        drawn.add_scatter(
            x=[row["change"]["value"] for row in own],
            y=[len(rows) - 1 - rows.index(row) for row in own],
            name=label(f"against {against}", 60),
            **_dots(place),
            error_x=error_bars([row["change"] for row in own], "value"),
        )
    names = [f"{row['text'].removesuffix(' domains')}, {row['mode']}" for row in rows]
    drawn.update_yaxes(tickvals=list(range(len(rows))), ticktext=names[::-1])
    drawn.update_xaxes(zeroline=True, zerolinewidth=2, zerolinecolor="#555")
    drawn.update_layout(legend={"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0})
    table = [
        {name: row[name] for name in ("text", "mode", "against")}
        | {f"change, % {name}".removesuffix(" value"): row["change"][name] for name in ("value", "low", "high")}
        for row in rows
    ]
    changes = describe_changes(findings)
    title = f"Calibrated on dev text (ours), perplexity against Dense: {changes}" if changes else "Calibrated (ours)"
    return drawn, title, table


def _ratios(findings: Findings, table: Sequence[Sequence[float]]) -> Drawn:
    titles = ("domain of the text", "expert of")
    drawn, title, rows = ratio_heatmap(table, findings["domains"], titles, "the domain's own expert")
    overlap = [cell for row in findings["pictures"]["overlap"] or () for cell in row]
    for row, cell in zip(rows, overlap, strict=False):
        row["overlap"] = cell
    return drawn, title, rows


def _posteriors(findings: Findings, data: Mapping[str, Any]) -> Drawn:
    experts, texts = findings["domains"], list(data)
    own = [text for text in texts if text in experts]
    right = sum(max(range(len(experts)), key=data[text]["mean"].__getitem__) == experts.index(text) for text in own)
    drawn = heatmap([data[text]["mean"] for text in texts], experts, texts, "expert of", "text", "posterior")
    rows = [
        {"text": text, "expert": expert, "mean posterior": mean, "updating prior at the end": updating}
        for text in texts
        for expert, mean, updating in zip(experts, data[text]["mean"], data[text]["updating"], strict=True)
    ]
    title = f"On {right} of {len(own)} training domains the own expert has the highest posterior: read a row"
    return drawn, title, rows


def _courses(findings: Findings, data: Mapping[str, Any]) -> Drawn:
    lines, styles = {}, []
    for place, (text, one) in enumerate(data.items()):
        leader = max(range(len(one["mean"])), key=one["mean"].__getitem__)
        name, dash = f"{text}: {findings['domains'][leader]}", "dot" if text in findings["novel"] else "solid"
        lines[name] = [{"block": block, "share": share} for block, share in enumerate(one["course"][leader], 1)]
        styles.append({"mode": "lines", "line": {"color": colour(place), "dash": dash}})
    drawn = figure("blocks of held-out text", "share of the one that leads at the end, in the mean so far")
    add_lines(drawn, lines, "block", "share", *styles)
    moves = {text: [far for far in one["moved"] if far is not None] for text, one in data.items()}
    rows = [{"text": text, "moved": ", ".join(f"{far:.3f}" for far in each)} for text, each in moves.items()]
    stable = sum(max(each) <= SETTLED for each in moves.values() if each)
    title = f"On {stable} of {len(data)} domains the posterior is stable after {STABLE_AFTER} blocks in every seed"
    return drawn, title, rows


CHARTS: Mapping[str, Chart] = {
    "curves": (itemgetter("curves"), _curves),
    "forgetting": (_forgetting_rows, _forgetting),
    "modes": (lambda findings: [row for row in findings["tables"]["5 by reading"] if row["ours"] is not None], _modes),
    "calibrated": (lambda findings: findings.get("calibrated", {}).get("against"), _changes_by_mode),
    "ratios": (lambda findings: findings["pictures"]["ratios"], _ratios),
    "posteriors": (lambda findings: findings["pictures"]["posteriors"], _posteriors),
    "courses": (lambda findings: findings["pictures"]["posteriors"], _courses),
}
