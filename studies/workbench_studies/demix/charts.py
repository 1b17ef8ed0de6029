"""The charts of DEMix's report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from workbench.formatting.number_format import label
from workbench.formatting.palette import COLOURS
from workbench_studies.core.drawing import (
    Chart,
    Draw,
    Rows,
    add_line,
    error_bars,
    figure,
    grouped,
    heatmap,
    lines,
    logarithmic,
    ratio_heatmap,
)
from workbench_studies.core.findings import Findings
from workbench_studies.demix.report import crossing_words, fitted_words
from workbench_studies.demix.tables import SETTLED, STABLE_AFTER

_APART = 0.12  # of the readings of one mode
_DASHES = ("solid", "dash", "dot", "dashdot")


def _curves(findings: Findings) -> Chart | None:
    rows: Rows = findings["curves"]
    if not rows:
        return None
    drawn = figure("training tokens", "perplexity per token", better="lower")
    names = list(dict.fromkeys(row["system"] for row in rows))
    for name, seed, line in lines(rows, "system"):
        style = {"color": COLOURS[names.index(name)], "dash": _DASHES[seed % len(_DASHES)]}
        add_line(drawn, line, f"{name}, seed {seed}", style)
    logarithmic(drawn, (row["perplexity"] for row in rows))
    drawn.update_xaxes(tickformat="~s")
    return Chart(drawn, crossing_words(findings), rows)


def _forgetting(findings: Findings) -> Chart | None:
    rows: Rows = findings["forgetting"]
    dense = [row for row in rows if row["method"] == "dense-DAPT"]
    if not dense:
        return None
    drawn = figure("tokens of the target", "perplexity per token", better="lower")
    targets = list(dict.fromkeys(row["target"] for row in rows))
    for (method, target, text), line in grouped(rows, ("method", "target", "text")).items():
        first = [row for row in line if row["seed"] == line[0]["seed"]]
        dash = "solid" if method == "dense-DAPT" else "dot"
        style = {
            "color": COLOURS[targets.index(target) % len(COLOURS)],
            "dash": dash,
            "width": 3 if text == "target" else 1,
        }
        add_line(drawn, first, f"{method} on {target}: {text}", style)
    logarithmic(drawn, (row["perplexity"] for row in rows))
    drawn.update_xaxes(tickformat="~s")
    title = "Solid: dense-DAPT, dotted: DEMix-DAPT; thick: the target, thin: the training domains. " + _forgotten(dense)
    return Chart(drawn, title, rows)


def _forgotten(dense: Rows) -> str:
    """For how many targets the training domains end worse than they began, by the mean over seeds."""
    lines = grouped([row for row in dense if row["text"] == "training domains"], ("target",)).values()
    worse = sum(_ends(line, max) > _ends(line, min) for line in lines)
    return f"Dense-DAPT's training domains end worse than they began for {worse} of {len(lines)} targets"


def _ends(line: Rows, which: Callable[[Iterable[int]], int]) -> float:
    """The mean perplexity at the first (`min`) or last (`max`) point of each seed."""
    by_seed = grouped(line, ("seed",)).values()
    at = [(rows, which(row["tokens"] for row in rows)) for rows in by_seed]
    return float(sum(row["perplexity"] for rows, tokens in at for row in rows if row["tokens"] == tokens) / len(at))


def _modes(findings: Findings) -> Chart | None:
    rows: Rows = [row for row in findings["tables"]["5 by reading"] if row["ours"] is not None]
    if not rows:
        return None
    drawn = figure("way to mix", "average perplexity per token on novel text", better="lower")
    names = list(dict.fromkeys(row["system"] for row in rows))
    readings = grouped(rows, ("reading",))
    for place, (reading, line) in enumerate(readings.items()):
        drawn.add_scatter(
            x=[names.index(row["system"]) + _APART * place for row in line],
            y=[row["ours"] for row in line],
            name=reading[0],
            mode="markers",
            marker={"color": COLOURS[place], "size": 10},
            error_y=error_bars(line, "ours"),
        )
    drawn.update_xaxes(
        tickvals=[place + _APART * (len(readings) - 1) / 2 for place in range(len(names))], ticktext=names
    )
    best = min(rows, key=lambda row: row["ours"])
    title = f"Lowest on novel text: {best['system']} with {best['reading']}"
    return Chart(drawn, title, rows)


def _calibrated(findings: Findings) -> Chart | None:
    """Each comparison of the calibrated reading a row, its change of perplexity with its interval."""
    rows: Rows = findings.get("calibrated", {}).get("against", [])
    if not rows:
        return None
    drawn = figure("change of perplexity against it, %", "", height=130 + 26 * len(rows))
    for place, (against, own) in enumerate(grouped(rows, ("against",)).items()):
        drawn.add_scatter(
            x=[row["change"]["value"] for row in own],
            y=[len(rows) - 1 - rows.index(row) for row in own],
            name=label(f"against {against[0]}", 60),
            mode="markers",
            marker={"color": COLOURS[place], "size": 10},
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
    changes = fitted_words(findings)
    title = f"Calibrated on dev text (ours), perplexity against Dense: {changes}" if changes else "Calibrated (ours)"
    return Chart(drawn, title, table)


def _ratios(findings: Findings) -> Chart | None:
    table, domains = findings["pictures"]["ratios"], findings["domains"]
    if table is None:
        return None
    chart = ratio_heatmap(table, domains, ("domain of the text", "expert of"), "the domain's own expert")
    overlap = [cell for row in findings["pictures"]["overlap"] or () for cell in row]
    for row, cell in zip(chart.rows, overlap, strict=False):
        row["overlap"] = cell
    return chart


def _posteriors(findings: Findings) -> Chart | None:
    data: Mapping[str, Any] = findings["pictures"]["posteriors"]
    if not data:
        return None
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
    return Chart(drawn, title, rows)


def _courses(findings: Findings) -> Chart | None:
    data: Mapping[str, Any] = findings["pictures"]["posteriors"]
    if not data:
        return None
    drawn = figure("blocks of held-out text", "share of the one that leads at the end, in the mean so far")
    for place, (text, one) in enumerate(data.items()):
        leader = max(range(len(one["mean"])), key=one["mean"].__getitem__)
        history = one["course"][leader]
        style = {"color": COLOURS[place % len(COLOURS)], "dash": "dot" if text in findings["novel"] else "solid"}
        drawn.add_scatter(
            x=list(range(1, len(history) + 1)),
            y=history,
            name=label(f"{text}: {findings['domains'][leader]}"),
            mode="lines",
            line=style,
        )
    moves = {text: [far for far in one["moved"] if far is not None] for text, one in data.items()}
    rows = [{"text": text, "moved": ", ".join(f"{far:.3f}" for far in each)} for text, each in moves.items()]
    stable = sum(max(each) <= SETTLED for each in moves.values() if each)
    title = f"On {stable} of {len(data)} domains the posterior is stable after {STABLE_AFTER} blocks in every seed"
    return Chart(drawn, title, rows)


CHARTS: Mapping[str, Draw] = {
    "curves": _curves,
    "forgetting": _forgetting,
    "modes": _modes,
    "calibrated": _calibrated,
    "ratios": _ratios,
    "posteriors": _posteriors,
    "courses": _courses,
}
