"""The HTML of tables, and of the gate weights inside an expert with parts: those of its backbone and of each part.

A strip runs from the first token to the last, stronger where the weight is greater; tables give every number.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence

from engine.events import BACKBONE
from ui.present.charts.colours import in_order
from ui.present.text.mode_gates import Gates, means, num_blocks, rows_inside
from ui.present.text.posteriors import leaders

READING = (
    "In every block and for every token, the gate weights of the frozen backbone and the active parts sum to 1. "
    "Tokens run from left to right; the stronger the colour, the greater the weight."
)


def table_html(caption: str, columns: Sequence[tuple[str, str]], rows: Iterable[Sequence[str]]) -> str:
    """A table. Each column has a head and a CSS class; heads and cells are HTML."""
    classes = [f' class="{name}"' if name else "" for _, name in columns]

    def row(tag: str, cells: Sequence[str]) -> str:
        inside = (f"<{tag}{name}>{cell}</{tag}>" for name, cell in zip(classes, cells, strict=True))
        return f"<tr>{''.join(inside)}</tr>"

    head, body = row("th", [name for name, _ in columns]), "".join(row("td", cells) for cells in rows)
    title = f"<caption>{caption}</caption>" if caption else ""
    return f"<table>{title}<thead>{head}</thead><tbody>{body}</tbody></table>"


def inside_html(texts: Sequence[str], gates: Gates, parts: Mapping[str, Sequence[str]], is_done: bool) -> str:
    """The gate weights of every expert with parts. `parts` are all of them, which fixes the colours."""
    active = {expert: names for expert, names in parts.items() if any(expert in token for token in gates)}
    return "".join(_expert(texts, gates, expert, names, is_done) for expert, names in active.items())


def _expert(texts: Sequence[str], gates: Gates, expert: str, parts: Sequence[str], is_done: bool) -> str:
    blocks = range(num_blocks(gates, expert))
    rows = rows_inside(gates, expert, parts)
    by_block = [rows_inside(gates, expert, parts, block) for block in blocks]
    each = "".join(f"<h5>Block {block + 1}</h5>{_strips(parts, by_block[block])}" for block in blocks)
    tokens = [text for text, token in zip(texts, gates, strict=True) if expert in token]
    numbers = _numbers(tokens, parts, by_block) if is_done else ""
    active = next(gate[expert].parts for gate in gates if expert in gate)
    names = [BACKBONE, *(part if part in active else f"{part} (off)" for part in parts)]
    return (
        f'{_means(expert, names, rows, by_block)}{_strips(parts, rows)}<p class="reading">{READING}</p>'
        f"<details><summary>Weights in each block</summary>{each}</details>{numbers}"
    )


def _means(
    expert: str, names: Sequence[str], rows: Sequence[Sequence[float]], by_block: Sequence[Sequence[Sequence[float]]]
) -> str:
    columns, led = [means(rows), *map(means, by_block)], leaders(rows)
    heads = ["Mean weight", *(f"Block {block + 1}" for block in range(len(by_block))), "Tokens led"]
    cells = (
        [html.escape(name), *(f"{column[index]:.1%}" for column in columns), str(led.count(index))]
        for index, name in enumerate(names)
    )
    caption = f"Gate weights inside {html.escape(expert)}"
    return table_html(caption, [("Part", ""), *((head, "number") for head in heads)], cells)


def _strips(parts: Sequence[str], rows: Sequence[Sequence[float]]) -> str:
    looks = in_order(parts)
    body = "".join(
        f'<tr><th scope="row">{html.escape(name)}</th><td><div class="strip" role="img" '
        f'aria-label="{html.escape(name)}: mean weight {column_mean:.0%}" '
        f'style="background:{_gradient(looks.expert(name).colour, [row[place] for row in rows])}"></div></td></tr>'
        for place, (name, column_mean) in enumerate(zip([BACKBONE, *parts], means(rows), strict=True))
    )
    return f'<table class="strips"><tbody>{body}</tbody></table>'


def _gradient(colour: str, weights: Sequence[float]) -> str:
    """A colour for each token, from left to right, without a transition between them."""
    step, stops = 100 / len(weights), []
    for number, weight in enumerate(weights):
        shade = f"{colour}{round(255 * min(1.0, max(0.0, weight))):02x}"
        stops.append(f"{shade} {number * step:.2f}% {(number + 1) * step:.2f}%")
    return f"linear-gradient(90deg,{','.join(stops)})"


def _numbers(texts: Sequence[str], parts: Sequence[str], by_block: Sequence[Sequence[Sequence[float]]]) -> str:
    """Every token with its weights, those of the blocks separated: 0.50 / 0.25."""
    indices = range(1 + len(parts))
    columns = [("Token", ""), *((html.escape(name), "number") for name in [BACKBONE, *parts])]
    cells = (
        [html.escape(repr(text)), *(" / ".join(f"{rows[number][index]:.2f}" for rows in by_block) for index in indices)]
        for number, text in enumerate(texts)
    )
    return (
        "<details><summary>Weights of every token in each block</summary>"
        f'<div class="numbers" tabindex="0">{table_html("", columns, cells)}</div></details>'
    )
