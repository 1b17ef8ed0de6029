"""The report's charts, each with a title that says what to read, its words and its numbers.

Names are user data: Plotly reads a little HTML in its labels, so every name passes through `_label`.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from workbench.palette import COLOURS
from workbench.replications.affinity import SETTLED
from workbench.replications.paper import STABLE_AFTER
from workbench.replications.reasons import crossing_words

Findings = Mapping[str, Any]
Rows = list[dict[str, Any]]
_DASHES = ("solid", "dash", "dot", "dashdot")


@dataclass(frozen=True)
class Chart:
    """A figure with everything that belongs to it."""

    figure: go.Figure
    title: str
    words: str
    rows: Rows


def charts(findings: Findings) -> dict[str, Chart]:
    """Every chart that there are numbers for, by its name."""
    drawn = {name: draw(findings) for name, draw in _CHARTS.items()}
    return {name: chart for name, chart in drawn.items() if chart is not None}


def _curves(findings: Findings) -> Chart | None:
    rows: Rows = findings["curves"]
    if not rows:
        return None
    figure = _figure("training tokens", "perplexity (per token)")
    names = list(dict.fromkeys(row["system"] for row in rows))
    for name, seed, line in _lines(rows, "system"):
        style = {"color": COLOURS[names.index(name)], "dash": _DASHES[seed % len(_DASHES)]}
        _add_line(figure, line, f"{name}, seed {seed}", style)
    figure.update_yaxes(type="log")
    figure.update_xaxes(tickformat="~s")
    words = "Line chart: held-out perplexity of each method and seed over training tokens, lower is better."
    return Chart(figure, crossing_words(findings), words, rows)


def _forgetting(findings: Findings) -> Chart | None:
    rows: Rows = findings["forgetting"]
    dense = [row for row in rows if row["method"] == "dense-DAPT"]
    if not dense:
        return None
    figure = _figure("tokens of the target", "perplexity (per token)")
    targets = list(dict.fromkeys(row["target"] for row in rows))
    for (method, target, text), line in _grouped(rows, ("method", "target", "text")).items():
        first = [row for row in line if row["seed"] == line[0]["seed"]]
        dash = "solid" if method == "dense-DAPT" else "dot"
        style = {
            "color": COLOURS[targets.index(target) % len(COLOURS)],
            "dash": dash,
            "width": 3 if text == "target" else 1,
        }
        _add_line(figure, first, f"{method} on {target}: {text}", style)
    figure.update_yaxes(type="log")
    figure.update_xaxes(tickformat="~s")
    title = "Dense-DAPT: thick lines are its targets, thin ones the training domains; " + _forgotten(dense)
    words = "Line chart: perplexity on the target and on the training domains while a model is adapted, first seed."
    return Chart(figure, title, words, rows)


def _forgotten(dense: Rows) -> str:
    """For how many targets the training domains end worse than they began, by the mean over seeds."""
    lines = _grouped([row for row in dense if row["text"] == "training domains"], ("target",)).values()
    worse = sum(_ends(line, max) > _ends(line, min) for line in lines)
    return f"these end worse than they began for {worse} of {len(lines)} targets"


def _ends(line: Rows, which: Callable[[Iterable[int]], int]) -> float:
    """The mean perplexity at the first (`min`) or last (`max`) point of each seed."""
    by_seed = _grouped(line, ("seed",)).values()
    at = [(rows, which(row["tokens"] for row in rows)) for rows in by_seed]
    return float(sum(row["perplexity"] for rows, tokens in at for row in rows if row["tokens"] == tokens) / len(at))


def _modes(findings: Findings) -> Chart | None:
    rows: Rows = [row for row in findings["tables"]["5 by reading"] if row["ours"] is not None]
    if not rows:
        return None
    figure = _figure("way to mix", "average perplexity on novel text")
    names = list(dict.fromkeys(row["system"] for row in rows))
    for place, (reading, line) in enumerate(_grouped(rows, ("reading",)).items()):
        figure.add_scatter(
            x=[names.index(row["system"]) + 0.12 * place for row in line], y=[row["ours"] for row in line],
            name=reading[0], mode="markers", marker={"color": COLOURS[place], "size": 10},
            error_y={
                "type": "data", "symmetric": False, "array": [row["high"] - row["ours"] for row in line],
                "arrayminus": [row["ours"] - row["low"] for row in line],
            },
        )  # fmt: skip
    figure.update_xaxes(tickvals=[place + 0.18 for place in range(len(names))], ticktext=names)
    best = min(rows, key=lambda row: row["ours"])
    title = f"Lowest on novel text: {best['system']} with {best['reading']}"
    words = "Dots: average perplexity of each way to mix under each reading of the posterior, with 95 % intervals."
    return Chart(figure, title, words, rows)


def _ratios(findings: Findings) -> Chart | None:
    table, domains = findings["pictures"]["ratios"], findings["domains"]
    if table is None:
        return None
    strangers = sum(cell < 1 for row in table for cell in row)
    title = "Read a column: 1.0 is the domain's own expert"
    title += "; nobody beats it anywhere" if not strangers else f"; in {strangers} cells a stranger beats it"
    figure = _heatmap(table, domains, domains, "domain of the text", "expert of", "ratio")
    overlap = findings["pictures"]["overlap"]
    rows = [
        {"expert": one, "domain": other, "ratio": table[i][j], **({"overlap": overlap[i][j]} if overlap else {})}
        for i, one in enumerate(domains) for j, other in enumerate(domains)
    ]  # fmt: skip
    words = "Heatmap: each expert's perplexity on each domain over that of the domain's own expert."
    return Chart(figure, title, words, rows)


def _posteriors(findings: Findings) -> Chart | None:
    found: Mapping[str, Any] = findings["pictures"]["posteriors"]
    if not found:
        return None
    experts, texts = findings["domains"], list(found)
    own = [text for text in texts if text in experts]
    right = sum(max(range(len(experts)), key=found[text]["mean"].__getitem__) == experts.index(text) for text in own)
    figure = _heatmap([found[text]["mean"] for text in texts], experts, texts, "expert of", "text", "posterior")
    rows = [
        {"text": text, "expert": expert, "mean posterior": mean, "updating prior at the end": updating}
        for text in texts
        for expert, mean, updating in zip(experts, found[text]["mean"], found[text]["updating"], strict=True)
    ]
    title = f"On {right} of {len(own)} training domains the own expert has the highest posterior: read a row"
    words = "Heatmap: mean end-of-block posterior of each expert on held-out text of each training and novel domain."
    return Chart(figure, title, words, rows)


def _courses(findings: Findings) -> Chart | None:
    found: Mapping[str, Any] = findings["pictures"]["posteriors"]
    if not found:
        return None
    figure = _figure("blocks of held-out text", "largest share of the mean posterior so far")
    for place, (text, one) in enumerate(found.items()):
        leader = max(range(len(one["mean"])), key=one["mean"].__getitem__)
        course = one["course"][leader]
        style = {"color": COLOURS[place % len(COLOURS)], "dash": "dot" if text in findings["novel"] else "solid"}
        figure.add_scatter(
            x=list(range(1, len(course) + 1)), y=course, name=_label(f"{text}: {findings['domains'][leader]}"),
            mode="lines", line=style,
        )  # fmt: skip
    moves = {text: [far for far in one["moved"] if far is not None] for text, one in found.items()}
    rows = [{"text": text, "moved": ", ".join(f"{far:.3f}" for far in each)} for text, each in moves.items()]
    stable = sum(max(each) <= SETTLED for each in moves.values() if each)
    title = f"On {stable} of {len(found)} domains the posterior is stable after {STABLE_AFTER} blocks in every seed"
    words = "Line chart: the leading expert's share of the mean posterior after each block, one line for each domain."
    return Chart(figure, title, words, rows)


_CHARTS: dict[str, Callable[[Findings], Chart | None]] = {
    "curves": _curves, "forgetting": _forgetting, "modes": _modes, "ratios": _ratios, "posteriors": _posteriors,
    "courses": _courses,
}  # fmt: skip


# drawing ------------------------------------------------------------------------------------------


def _figure(x: str, y: str, height: int = 420) -> go.Figure:
    figure = go.Figure()
    figure.update_layout(height=height, margin={"l": 8, "r": 8, "t": 30, "b": 8})
    figure.update_xaxes(title=x, automargin=True)
    figure.update_yaxes(title=y, automargin=True)
    return figure


def _heatmap(cells: Sequence[Sequence[float]], across: Iterable[str], down: Iterable[str], *titles: str) -> go.Figure:
    x, y, scale = titles
    figure = _figure(x, y, height=130 + 40 * len(cells))
    figure.add_heatmap(
        z=cells, x=[_label(one) for one in across], y=[_label(one) for one in down], colorscale="Viridis",
        texttemplate="%{z:.2f}", xgap=2, ygap=2, colorbar={"title": scale},
    )  # fmt: skip
    figure.update_yaxes(autorange="reversed")
    return figure


def _add_line(figure: go.Figure, line: Rows, name: str, style: Mapping[str, Any]) -> None:
    figure.add_scatter(
        x=[row["tokens"] for row in line], y=[row["perplexity"] for row in line], name=_label(name, 60),
        mode="lines", line=dict(style),
    )  # fmt: skip


def _grouped(rows: Rows, names: Sequence[str]) -> dict[tuple[Any, ...], Rows]:
    found: dict[tuple[Any, ...], Rows] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return found


def _lines(rows: Rows, name: str) -> list[tuple[str, int, Rows]]:
    return [(key[0], key[1], line) for key, line in _grouped(rows, (name, "seed")).items()]


def _label(name: object, limit: int = 40) -> str:
    text = str(name)
    return html.escape(text if len(text) <= limit else text[: limit - 1] + "…", quote=False)
